"""``metrics.jsonl`` of a run, and the same figures for TensorBoard if that is installed."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt_cli.files import atomic_files
from nmt_cli.files.file_names import METRICS, TENSORBOARD
from nmt_cli.messages import logs
from nmt_cli.messages.errors import OutputError
from nmt_cli.messages.figures import null_if_not_finite

if TYPE_CHECKING:
    from nmt_cli.saved.tensorboard_log import TensorboardLog


class MetricsLog:
    """Appends records to a file; after a resume each step has one record.

    If TensorBoard is installed, the same figures go into ``tensorboard/`` beside the file.
    """

    def __init__(self, path: Path, *, keep_until_step: int) -> None:
        """Open ``path``; remove records after ``keep_until_step`` and incomplete ones.

        Raises OutputError if the disk is full.
        """
        self._path = path
        self._resumed_at = keep_until_step
        self._is_full = False
        self._keep(lambda record: record["step"] <= keep_until_step)
        self._tensorboard = _tensorboard_log(path.parent / TENSORBOARD, keep_until_step)

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record, which holds ``step``.

        NaN and infinity, which JSON does not have, are written as null. If the disk is full, a
        warning is logged once and training goes on.
        """
        record = null_if_not_finite(record)
        try:
            if record["step"] == self._resumed_at and "validation" in record:
                # Training stopped after this validation was measured and before it was saved.
                self._keep(lambda kept: kept["step"] != record["step"] or "validation" not in kept)
            atomic_files.append_whole(
                self._path, json.dumps(record, allow_nan=False).encode() + b"\n"
            )
            self._is_full = False
        except (OSError, OutputError) as error:
            cause = error if isinstance(error, OSError) else error.__cause__
            if not isinstance(cause, OSError) or not atomic_files.is_failed_write(cause):
                raise
            if not self._is_full:
                logs.warning(f"{self._path} cannot grow: {cause.strerror}; training goes on.")
            self._is_full = True
        if self._tensorboard is not None:
            self._tensorboard.append(record)

    def _keep(self, is_kept: Callable[[Mapping[str, Any]], bool]) -> None:
        """Leave only the records that are whole and for which ``is_kept`` is true."""
        kept = b"".join(_lines_of(self._path, is_kept))
        if not self._path.exists() or self._path.read_bytes() != kept:
            with atomic_files.file_appearing_whole(self._path, replace=True) as stream:
                stream.write(kept)


def logged_validations(run_dir: Path) -> list[dict[str, Any]]:
    """Return the records of metrics.jsonl that are of validations."""
    lines = _lines_of(run_dir / METRICS, lambda record: "validation" in record)
    return [json.loads(line) for line in lines]


def _lines_of(path: Path, is_kept: Callable[[Mapping[str, Any]], bool]) -> Iterator[bytes]:
    if not path.exists():
        return
    for line in path.read_bytes().split(b"\n"):
        try:
            if is_kept(json.loads(line)):
                yield line + b"\n"
        except (ValueError, KeyError, TypeError):
            continue


def _tensorboard_log(directory: Path, resumed_at: int) -> TensorboardLog | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from nmt_cli.saved.tensorboard_log import TensorboardLog
    except ModuleNotFoundError:
        return None  # it is an extra
    except Exception as error:  # such as protobuf's, of a version that does not fit
        logs.warning(f"TensorBoard cannot be used: {error} Training goes on without.")
        return None
    return TensorboardLog(directory, resumed_at)
