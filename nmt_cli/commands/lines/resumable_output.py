"""An output file that can be continued after its translation was interrupted or killed.

``FILE.partial`` holds the output so far, and ``.made-FILE.json`` records how far it may be trusted.
The bytes of the output reach the disk before the record that counts them; what is behind them was
written by a window that was not finished, and is cut off. At the end the record is of the whole
output, and ``FILE.partial`` becomes ``FILE``.
"""

import hashlib
import io
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from nmt_cli.commands.lines import translation_record as records
from nmt_cli.files import atomic_files
from nmt_cli.files.lines import Line
from nmt_cli.files.locks import claimed
from nmt_cli.files.output_streams import OutputReader
from nmt_cli.files.temporary_names import remove_leftovers
from nmt_cli.files.text_files import compressed
from nmt_cli.messages import logs
from nmt_cli.messages.errors import DamagedError, OutputError, UserError
from nmt_cli.messages.figures import counted
from nmt_cli.messages.proposals import command

Composer = Callable[[bytes], bytes]  # makes a file of what was written to the unfinished one
SECONDS_BETWEEN_RECORDS = 2.0  # writing one waits for the disk


class ResumableOutput:
    """The output file of a translation, written window by window.

    ``begin`` it once, ``add`` each window in order. ``resumable_output`` makes one and finishes it.
    """

    is_file = True
    reader: OutputReader = "none"

    def __init__(
        self,
        path: Path,
        record: records.Record | None,
        *,
        keeps_record: bool = True,
        compose: Composer | None = None,
    ) -> None:
        """``record`` is that of the unfinished output to continue; None to start anew.

        ``keeps_record`` is whether a record stays beside the complete output.
        """
        self._keeps_record, self._compose = keeps_record, compose
        self.made_with = record.made_with if record else {}
        self.machine = record.machine if record else {}
        self.progress = record.progress if record else records.FinishedLines()
        self._path, self._record = path, record
        self._stream: BinaryIO | None = None
        self._input, self._output = hashlib.sha256(), hashlib.sha256()
        self._skipped = 0
        self._recorded_at = 0.0

    def begin(
        self, made_with: Mapping[str, Any], machine: Mapping[str, Any], asked: Mapping[str, str]
    ) -> None:
        """Open the file. Raises UserError if the unfinished output was made with anything else.

        The arguments are the fields of a ``Record``.
        """
        made_with, machine = records.as_recorded(made_with), records.as_recorded(machine)
        if self._record is not None:
            partial = records.partial_of(self._path)
            if other := "; ".join(records.differences(self._record.made_with, made_with)):
                raise UserError(
                    f"--resume cannot continue {partial}, which was made differently (old -> new): "
                    f"{other}. Give what it was made with, or --force instead of --resume to start "
                    "anew."
                )
            if other := "; ".join(records.differences(self._record.machine, machine)):
                logs.warning(
                    f"{partial} was made differently (old -> new): {other}. Sums may be rounded "
                    "differently, so a line with two equally good translations may get the other "
                    "one."
                )
            if self.progress.num_lines:
                logs.info(f"Continuing after line {self.progress.num_lines:,} of {partial}.")
        record = records.Record(made_with, machine, self.progress, dict(asked))
        if self._record is None:
            records.write_record(self._path, record)  # first, so that no file is without one
        self._record = record
        self._stream = self._opened()

    def _opened(self) -> BinaryIO:
        partial = records.partial_of(self._path)
        if not self.progress.num_bytes:
            return partial.open("wb")
        try:
            stream = partial.open("r+b")
        except FileNotFoundError:
            raise DamagedError(f"{partial} is missing; start anew with --force.") from None
        left = self.progress.num_bytes
        while left and (chunk := stream.read(min(left, atomic_files.HASHED_AT_ONCE))):
            self._output.update(chunk)
            left -= len(chunk)
        if self._output.hexdigest() != self.progress.output_sha256:
            stream.close()
            raise DamagedError(
                f"{partial} has changed since it was written, so it cannot be continued; start "
                "anew with --force."
            )
        stream.truncate(self.progress.num_bytes)
        stream.seek(self.progress.num_bytes)
        return stream

    def without_finished(self, windows: Iterator[list[Line]]) -> Iterator[list[Line]]:
        """Yield the windows of lines behind those that are finished.

        Raises UserError if the input does not begin with the lines that were translated.
        """
        expected = self.progress
        for window in windows:
            num_finished = min(len(window), expected.num_lines - self._skipped)
            for line in window[:num_finished]:
                self._input.update(records.text_of(line))
            self._skipped += num_finished
            if num_finished and self._skipped == expected.num_lines:
                self._refuse_other_input()
            if rest := window[num_finished:]:
                yield rest
        if self._skipped < expected.num_lines:
            self._refuse_other_input()

    def _refuse_other_input(self) -> None:
        expected, found = self.progress, self._input.hexdigest()
        if (self._skipped, found) == (expected.num_lines, expected.input_sha256):
            return
        if self._skipped < expected.num_lines:
            what = f"lines: at least {expected.num_lines:,} -> {self._skipped:,}"
        else:
            first = f"sha256 of the first {counted(expected.num_lines, 'line')}"
            what = next(records.differences({first: expected.input_sha256}, {first: found}))
        raise UserError(
            f"--resume cannot continue {records.partial_of(self._path)}, which was made from "
            f"another input (old -> new): {what}. Give the same input, or --force instead of "
            "--resume to start anew."
        )

    def add(self, lines: Sequence[Line], data: bytes, tally: dict[str, Any]) -> None:
        """Write the output of a whole window, and count its lines as finished."""
        self._append(data)
        for line in lines:
            self._input.update(records.text_of(line))
        stream = self._begun()
        # A single assignment, so that an interrupt finds the old progress or the new one.
        self.progress = records.FinishedLines(
            self.progress.num_lines + len(lines),
            stream.tell(),
            self._input.hexdigest(),
            self._output.hexdigest(),
            tally,
        )
        if time.monotonic() - self._recorded_at > SECONDS_BETWEEN_RECORDS:
            self._save()

    def finish(self, *, replace: bool) -> None:
        """Give the file its name."""
        stream = self._begun()
        if self._compose is None:
            if not stream.tell():
                self._append(b"")  # also an empty file must be one that can be decompressed
            # The record comes first, so that no complete output is without one.
            self._record_output(stream.tell(), self._output.hexdigest())
            atomic_files.publish_file(stream, self._path, replace=replace)
        else:
            stream.flush()
            with (
                atomic_files.file_appearing_whole(self._path, replace=replace) as whole,
                compressed(whole, self._path) as packed,
            ):
                packed.write(self._compose(Path(stream.name).read_bytes()))
            self._record_output(self._path.stat().st_size, atomic_files.sha256(self._path))
            records.partial_of(self._path).unlink()
        if not self._keeps_record:
            records.record_path(self._path).unlink(missing_ok=True)
        _remove_leftovers(self._path)

    def _record_output(self, num_bytes: int, output_sha256: str) -> None:
        self.progress = self.progress._replace(num_bytes=num_bytes, output_sha256=output_sha256)
        self._save()

    def keep(self) -> int:
        """Keep what is finished for ``--resume``; return the number of its lines."""
        if self.progress.num_lines:
            with suppress(OSError, OutputError):  # the disk is full; the record before is valid
                self._save()
        record = records.read_record(self._path)
        return record.progress.num_lines if record else 0

    def close(self) -> None:
        """Close the file."""
        if self._stream is not None:
            with suppress(OSError):  # what is not written yet was not counted as finished
                self._stream.close()

    def _append(self, data: bytes) -> None:
        """Write ``data`` at the end; in a compressed file as a member of its own."""
        member = io.BytesIO()
        suffix = self._path if self._compose is None else Path()
        with compressed(member, suffix) as packed:
            packed.write(data)
        self._output.update(member.getvalue())
        self._begun().write(member.getvalue())

    def _begun(self) -> BinaryIO:
        assert self._stream is not None, "begin() comes first"
        return self._stream

    def _save(self) -> None:
        """Write the record of what is finished, after the output that it counts."""
        assert self._record is not None
        stream = self._begun()
        stream.flush()
        os.fsync(stream.fileno())
        records.write_record(self._path, self._record._replace(progress=self.progress))
        self._recorded_at = time.monotonic()


@contextmanager
def resumable_output(
    path: Path,
    *,
    replace: bool,
    resume: bool,
    arguments: Sequence[str] | None,
    compose: Composer | None = None,
) -> Iterator[ResumableOutput]:
    """Yield an output file that becomes ``path`` if the block ends without an error.

    With ``compose``, what it makes of the file becomes ``path``.

    After any other end, what is finished is kept for ``--resume``, and the error has the command
    that goes on. ``arguments`` are those of the command; without them nothing is kept, and no
    record stays beside the complete output. Raises UserError if ``path`` cannot be written, or if
    an unfinished output is there and neither ``resume`` nor ``replace`` is true.
    """
    atomic_files.refuse_file(path, replace=replace)
    with claimed(path, "--output"):
        before = _record_of_complete(path)
        record = _record_to_continue(path, replace=replace, resume=resume, arguments=arguments)
        output = ResumableOutput(path, record, keeps_record=arguments is not None, compose=compose)
        try:
            with atomic_files.naming_failed_writes(path, leaves_nothing=False):
                yield output
                output.finish(replace=replace)
        except BaseException as error:
            is_untouched = record is not None and output.progress == record.progress
            if is_untouched and isinstance(error, UserError):
                raise  # what was finished before is as it was
            kept = output.progress.num_lines if is_untouched else output.keep()
            if arguments is None or not kept:
                _remove_unfinished(path)
                if before is not None:
                    with suppress(OSError, OutputError):  # the disk is full
                        records.write_record(path, before)
                if arguments is None or not records.is_stop(error):
                    raise
                nothing = f"{path} was not written: no window of lines was finished."
                raise records.stopped(error, nothing) from None
            advised = records.with_advice(error, path, kept, arguments)
            if advised is error:
                raise
            raise advised from None
        finally:
            output.close()


def _remove_unfinished(path: Path) -> None:
    """Remove the unfinished output of ``path`` and its record, in this order."""
    records.partial_of(path).unlink(missing_ok=True)
    records.record_path(path).unlink(missing_ok=True)
    _remove_leftovers(path)


def _remove_leftovers(path: Path) -> None:
    """Remove what a killed process left of writing the record of ``path``."""
    remove_leftovers(path.parent, records.record_path(path).name)


def _record_of_complete(path: Path) -> records.Record | None:
    """Return the record of the complete output ``path``; None if there is none that can be read."""
    with suppress(DamagedError):
        return records.read_record(path) if records.is_finished(path) else None
    return None


def _record_to_continue(
    path: Path, *, replace: bool, resume: bool, arguments: Sequence[str] | None
) -> records.Record | None:
    """Return the record of the unfinished output to continue; None to start anew."""
    partial = records.partial_of(path)
    if replace and not resume:
        if partial.exists():
            logs.info(f"Removing {partial}, an unfinished translation, because of --force.")
        _remove_unfinished(path)
        return None
    record = records.read_record(path)
    if record is None and partial.exists():
        raise UserError(
            f"{partial} is in the way: it cannot be continued, because its record "
            f"{records.record_path(path).name} is missing; move it away, or add --force to remove "
            "it."
        )
    if record is None or not partial.exists():
        _remove_unfinished(path)  # a process was killed after its last window
        return None
    if not record.progress.num_lines:  # a process was killed before its first window
        return record if resume else None
    if not resume:
        go_on = f": {command('nmt-cli', *arguments, '--resume')}" if arguments else ""
        raise UserError(
            f"{partial} holds the output of {counted(record.progress.num_lines, 'line')} of an "
            f"unfinished translation. Add --resume to go on{go_on}\nOr add --force to start anew."
        )
    return record
