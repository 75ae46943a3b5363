"""Where translations go: to a stream, or to a file that ``--resume`` continues or leaves."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from nmt_cli.checkpoints import find_model, fingerprint
from nmt_cli.commands.lines.job_record import (
    Record,
    as_recorded,
    differences,
    finished_record_of,
    partial_of,
    read_finished_record,
    remove_record,
    text_of,
)
from nmt_cli.commands.lines.pipes import StandardOutput
from nmt_cli.commands.lines.resumable_output import ResumableOutput, resumable_output, stopped
from nmt_cli.files.atomic_files import file_appearing_whole, read_manifest, sha256
from nmt_cli.files.lines import Line
from nmt_cli.files.locks import claimed
from nmt_cli.files.output_streams import OutputReader, is_stream, reader_of
from nmt_cli.files.text_files import compressed
from nmt_cli.hardware.choices import AUTO
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError


def is_finished(path: Path) -> bool:
    """Return whether ``path`` is there and no unfinished output of it.

    If a process was killed after it gave the file its name, what it left is removed.
    """
    if not path.is_file() or partial_of(path).exists():
        return False
    with claimed(path, "--output"):
        remove_record(path)
    return True


def fingerprints(models: Sequence[Path]) -> str:
    """Return what the record of a translation by ``models`` says of them.

    Raises UserError if one is missing.
    """
    return " ".join(fingerprint(read_manifest(find_model(path))) for path in models)


def refuse_other(
    path: Path,
    models: Sequence[Path],
    made_with: Mapping[str, Any],
    asked: Mapping[str, str],
    lines: Iterator[Line],
) -> None:
    """Raise UserError unless ``path`` is the complete translation of ``lines`` by ``models``.

    ``made_with`` are the other options that affect the output. ``asked`` are device and precision
    as the user gave them; "auto" stands for what was used.
    """
    record = read_finished_record(path)
    if record is None:
        _refuse(
            f"{path} is complete, but {finished_record_of(path)}, the record of the model, the "
            "input and the options it was made with, is missing."
        )
    used = {
        name: record.made_with.get(name) if value in {AUTO, record.asked.get(name)} else value
        for name, value in asked.items()
    }
    now = as_recorded({**made_with, **used, "model": fingerprints(models)})
    _refuse_different(path, record.made_with, now)
    if sha256(path) != record.progress.output_sha256:
        _refuse(f"{path} has changed since it was translated.")
    _refuse_different(path, _facts_of_input(record), _facts_of(lines))
    logs.info(f"{path} is complete, and made with this model, input and options: nothing to do.")


def _refuse_different(path: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    if other := list(differences(old, new)):
        _refuse(f"{path} is complete, but was made otherwise (old -> new): {'; '.join(other)}.")


def _refuse(problem: str) -> NoReturn:
    raise UserError(
        f"{problem} Give another --output, or --force instead of --resume to translate anew."
    )


def _facts_of_input(record: Record) -> dict[str, Any]:
    progress = record.progress
    return {"lines of the input": progress.num_lines, "sha256 of the input": progress.input_sha256}


def _facts_of(lines: Iterator[Line]) -> dict[str, Any]:
    number, digest = 0, hashlib.sha256()
    for number, line in enumerate(lines, 1):  # noqa: B007 - the last number is used
        digest.update(text_of(line))
    return {"lines of the input": number, "sha256 of the input": digest.hexdigest()}


Write = Callable[[bytes], object]


class Stream:
    """Standard output, a device or a pipe: what is written there cannot be continued.

    It has what ``translate`` uses of a ``ResumableOutput``.
    """

    made_with: Mapping[str, Any] = {}
    machine: Mapping[str, Any] = {}
    tally: Mapping[str, Any] | None = None
    is_file = False

    def __init__(self, write: Write, reader: OutputReader) -> None:
        """``write`` writes all bytes that it gets; ``reader`` reads them meanwhile."""
        self._write, self.reader = write, reader
        self.is_empty = True

    def without_finished(self, windows: Iterator[list[Line]]) -> Iterator[list[Line]]:
        """Return all windows: none of them is finished."""
        return windows

    def add(self, lines: Sequence[Line], data: bytes, tally: dict[str, Any]) -> None:
        """Write the output of a whole window."""
        self.is_empty = False
        self._write(data)


@contextmanager
def opened_output(
    path: Path | None, *, force: bool, resume: bool, arguments: Sequence[str] | None
) -> Iterator[Stream | ResumableOutput]:
    """Yield what writes to ``path`` or, if that is None, to stdout.

    Raises OutputError if it cannot be written, and StoppedTranslationError if the command is
    stopped before anything was written.
    """
    if path is None:
        standard = StandardOutput()
        yield from _reporting_an_early_stop(Stream(standard.write, standard.reader))
    elif is_stream(path):
        with file_appearing_whole(path) as stream, compressed(stream, path) as packed:
            write = partial(_write_at_once, stream) if packed is stream else packed.write
            yield from _reporting_an_early_stop(Stream(write, reader_of(stream.fileno())))
    else:
        with resumable_output(path, replace=force, resume=resume, arguments=arguments) as resumable:
            yield resumable


def _reporting_an_early_stop(stream: Stream) -> Iterator[Stream]:
    try:
        yield stream
    except (KeyboardInterrupt, SystemExit) as stop:
        if not stream.is_empty:
            raise
        raise stopped(stop, "Nothing was written: no line was finished.") from None


def _write_at_once(stream: BinaryIO, data: bytes) -> None:
    stream.write(data)
    stream.flush()  # the reader of a pipe is waiting for these lines
