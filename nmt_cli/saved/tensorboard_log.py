"""The figures of training as TensorBoard's scalars; import it only if TensorBoard is installed.

torch's SummaryWriter is not used: on a full disk it leaves part of a record in the file, its thread
ends with a traceback, and it writes nothing more when there is space again (TensorBoard 2.21). It
also imports TensorFlow where that is installed.
"""

import io
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # type: ignore[import-untyped]
from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-untyped]
from tensorboard.summary.writer.record_writer import RecordWriter  # type: ignore[import-untyped]

from nmt_cli.files.atomic_files import append_whole, is_failed_write
from nmt_cli.files.file_names import SETS
from nmt_cli.messages import logs

FORMAT = "brain.Event:2"  # the first version in which a START event hides repeated steps
LARGEST_EXPONENT = 80.0  # scalars are fp32
NOT_DRAWN = {"step", "batch_index"}


class TensorboardLog:
    """One event file, made with its first scalars; its errors never stop training."""

    def __init__(self, directory: Path, resumed_at: int) -> None:
        # TensorBoard reads the files of a directory in the order of their names.
        self._path = directory / f"events.out.tfevents.{time.time_ns():020d}.{os.getpid()}"
        self._is_closed = False
        # TensorBoard drops earlier scalars from this step on; SummaryWriter calls it purge_step.
        start = SessionLog(status=SessionLog.START)
        self._head = _as_bytes(Event(wall_time=time.time(), file_version=FORMAT))
        self._head += _as_bytes(
            Event(wall_time=time.time(), step=resumed_at + 1, session_log=start)
        )

    def append(self, record: Mapping[str, Any]) -> None:
        """Write all scalars of a record of ``metrics.jsonl``, or none of them.

        No warning here when the disk is full: metrics.jsonl is on the same disk and already warned.
        """
        if self._is_closed:
            return
        values = [
            Summary.Value(tag=tag, simple_value=value) for tag, value in scalars_of(record).items()
        ]
        event = Event(wall_time=time.time(), step=record["step"], summary=Summary(value=values))
        try:
            self._path.parent.mkdir(exist_ok=True)
            append_whole(self._path, self._head + _as_bytes(event))
            self._head = b""
        except OSError as error:
            if not is_failed_write(error):
                logs.warning(f"{self._path} cannot be written: {error.strerror}; it ends here.")
                self._is_closed = True


def scalars_of(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite figures of a record, named ``train/...`` or ``validation/...``.

    Those of a validation set with a name are called ``validation/NAME/...``.
    """
    if "validation" in record:
        sets = record["validation"].get(SETS, {})
        parts = {"": record["validation"], **{f"{name}/": sets[name] for name in sets}}
        return {
            f"validation/{part}{name}": value
            for part, figures in parts.items()
            for name, value in _figures(figures)
        }
    scalars = {f"train/{name}": value for name, value in _figures(record)}
    if "train/nll" in scalars:
        scalars["train/perplexity"] = math.exp(min(scalars["train/nll"], LARGEST_EXPONENT))
    if scalars.get("train/seconds"):
        tokens = scalars["train/target_tokens"]
        scalars["train/tokens_per_second"] = tokens / scalars["train/seconds"]
    return scalars


def _figures(record: Mapping[str, Any]) -> list[tuple[str, float]]:
    return [
        (name, float(value))
        for name, value in record.items()
        if name not in NOT_DRAWN and isinstance(value, int | float) and math.isfinite(value)
    ]


def _as_bytes(event: Any) -> bytes:
    stream = io.BytesIO()
    RecordWriter(stream).write(event.SerializeToString())
    return stream.getvalue()
