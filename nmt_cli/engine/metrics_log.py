"""``metrics.jsonl``: one JSON object a line, one line a step and one a validation."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nmt_cli import logs
from nmt_cli.atomic_files import file_appearing_whole, is_full_disk


class MetricsLog:
    """Appends records to a file; after a resume each step stands in it once."""

    def __init__(self, path: Path, *, keep_until_step: int) -> None:
        """Open ``path``, dropping records after ``keep_until_step`` and what was torn."""
        kept = b"".join(_records_until(path, keep_until_step))
        if not path.exists() or path.read_bytes() != kept:
            with file_appearing_whole(path, replace=True) as stream:
                stream.write(kept)
        self._path = path
        self._is_full = False

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record, which holds ``step``; a full disk is told once and stops nothing."""
        try:
            with self._path.open("ab") as stream:
                stream.write(json.dumps(record).encode() + b"\n")
            self._is_full = False
        except OSError as error:
            if not is_full_disk(error):
                raise
            if not self._is_full:
                logs.warning(f"{self._path} cannot grow: {error.strerror}; training goes on.")
            self._is_full = True


def _records_until(path: Path, last_step: int) -> Iterator[bytes]:
    if not path.exists():
        return
    for line in path.read_bytes().split(b"\n"):
        try:
            if json.loads(line)["step"] <= last_step:
                yield line + b"\n"
        except (ValueError, KeyError, TypeError):
            continue
