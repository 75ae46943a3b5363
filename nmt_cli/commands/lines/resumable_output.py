"""An output file that can be continued after its translation was interrupted or killed.

``FILE.partial`` holds the output so far, and ``.made-FILE.json`` records how far it may be trusted.
The bytes of the output reach the disk before the record that counts them; what is behind them was
written by a window that was not finished, and is cut off. At the end the record is of the whole
output, and ``FILE.partial`` becomes ``FILE``.
"""

import io
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NoReturn

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

# Makes a file of what was written to the unfinished one, and counts what failed.
Composer = Callable[[bytes], tuple[bytes, int]]
SECONDS_BETWEEN_RECORDS = 2.0  # writing one waits for the disk
OF_ANOTHER_TEXT = "from another text. Give the same text"
NOTHING = records.Record()


class ResumableOutput:
    """The output file of a translation, written window by window.

    ``begin`` it once, ``add`` each window in order. ``resumable_output`` makes one and finishes it.
    """

    is_file = True
    reader: OutputReader = "none"

    def __init__(self, path: Path, record: records.Record | None, compose: Composer | None) -> None:
        """``record`` is that of the unfinished output to continue; None to start anew."""
        self._path, self._partial, self._compose = path, records.partial_of(path), compose
        self.record = self._saved = record or NOTHING  # of what is finished; the one in the file
        self._stream: BinaryIO | None = None
        self._text = records.TextSoFar()
        self._saved_at = 0.0

    def begin(self, made: records.MadeWith, text: records.TextSoFar) -> None:
        """Open the file of what is ``made`` so; ``text`` takes the lines that are finished.

        Raises UserError if the unfinished output was made with anything else.
        """
        self._text = text
        if self.record == NOTHING:
            self.record = self._saved = records.Record(made, text.sha256())
            records.write_record(self._path, self.record)  # first, so that no file is without one
        elif other := made.unlike(self.record.made):
            self._refuse(f"with {other}. Give what it was made with")
        elif self.record.num_lines:
            logs.info(f"Continuing after line {self.record.num_lines:,} of {self._partial}.")
            records.warn_of_failed(self._partial, self.record)
        self._stream = self._partial.open("ab")
        self._stream.truncate(self.record.num_bytes)
        self._stream.seek(self.record.num_bytes)

    def without_finished(self, windows: Iterator[list[Line]]) -> Iterator[list[Line]]:
        """Yield the windows of lines behind those that are finished.

        Raises UserError if the text does not begin with the lines that were translated.
        """
        text, left = self.record.text, self.record.num_lines
        for window in windows:
            finished, others = window[:left], window[left:]
            if finished:
                self._text.add(finished)
                left -= len(finished)
                if not left and self._text.sha256() != text:
                    self._refuse(OF_ANOTHER_TEXT)
            if others:
                yield others
        if left:
            self._refuse(OF_ANOTHER_TEXT)

    def _refuse(self, how: str) -> NoReturn:
        raise UserError(
            f"--resume cannot continue {self._partial}, which was made {how}, or --force instead "
            "of --resume to start anew."
        )

    def add(self, lines: Sequence[Line], data: bytes, num_failed: int) -> None:
        """Write the output of a whole window, and count its lines as finished.

        ``num_failed`` lines have failed since the beginning of the text.
        """
        self._append(data)
        self._text.add(lines)
        # A single assignment, so that an interrupt finds the old record or the new one.
        text, made = self._text, self.record.made
        self.record = records.Record(
            made, text.sha256(), text.num_lines, self._opened.tell(), num_failed
        )
        if time.monotonic() - self._saved_at > SECONDS_BETWEEN_RECORDS:
            self._save(self.record)

    def finish(self, *, replace: bool) -> None:
        """Give the file its name."""
        if self._compose is None:
            if not self._opened.tell():
                self._append(b"")  # also an empty file must be one that can be decompressed
            # The record comes first, so that no complete output is without one.
            self._save(self.record._replace(num_bytes=self._opened.tell()))
            atomic_files.publish_file(self._opened, self._path, replace=replace)
        else:
            self._opened.flush()
            data, num_failed = self._compose(self._partial.read_bytes())
            with (
                atomic_files.file_appearing_whole(self._path, replace=replace) as whole,
                compressed(whole, self._path) as packed,
            ):
                packed.write(data)
            num_bytes = self._path.stat().st_size
            self._save(self.record._replace(num_bytes=num_bytes, num_failed=num_failed))
            self._partial.unlink()
        _remove_leftovers(self._path)

    def keep(self) -> int:
        """Keep what is finished for ``--resume``; return the number of its lines."""
        if self.record != self._saved:
            with suppress(OSError, OutputError):  # the disk is full; the record before is valid
                self._save(self.record)
        return self._saved.num_lines

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
        self._opened.write(member.getvalue())

    @property
    def _opened(self) -> BinaryIO:
        assert self._stream is not None, "begin() comes first"
        return self._stream

    def _save(self, record: records.Record) -> None:
        """Write the record of what is finished, after the output that it counts."""
        self._opened.flush()
        os.fsync(self._opened.fileno())
        records.write_record(self._path, record)
        self._saved, self._saved_at = record, time.monotonic()


@contextmanager
def resumable_output(
    path: Path,
    *,
    replace: bool,
    resume: bool,
    arguments: Sequence[str],
    compose: Composer | None = None,
) -> Iterator[ResumableOutput]:
    """Yield an output file that becomes ``path`` if the block ends without an error.

    With ``compose``, what it makes of the file becomes ``path``.

    After any other end, what is finished is kept for ``--resume``, and the error has the command
    that goes on. ``arguments`` are those of the command. Raises UserError if ``path`` cannot be
    written, or if an unfinished output is there and neither ``resume`` nor ``replace`` is true.
    """
    atomic_files.refuse_file(path, replace=replace)
    with claimed(path, "--output"):
        complete = _record_of_complete(path)
        record = _record_to_continue(path, replace=replace, resume=resume, arguments=arguments)
        output = ResumableOutput(path, record, compose)
        try:
            with atomic_files.naming_failed_writes(path, leaves_nothing=False):
                yield output
                output.finish(replace=replace)
        except BaseException as error:
            if output.record == record and isinstance(error, UserError):
                raise  # what was finished before is as it was
            if not (kept := output.keep()):
                _remove_unfinished(path)
                if complete is not None:
                    with suppress(OSError, OutputError):  # the disk is full
                        records.write_record(path, complete)
                if not records.is_stop(error):
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
    path: Path, *, replace: bool, resume: bool, arguments: Sequence[str]
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
    if partial.stat().st_size < record.num_bytes:
        raise DamagedError(
            f"{partial} is shorter than it was, so it cannot be continued; start anew with --force."
        )
    if not record.num_lines:  # a process was killed before its first window
        return record if resume else None
    if not resume:
        raise UserError(
            f"{partial} holds the output of {counted(record.num_lines, 'line')} of an unfinished "
            "translation. Add --resume to go on: "
            f"{command('nmt-cli', *arguments, '--resume')}\nOr add --force to start anew."
        )
    return record
