"""Where ``translate`` writes: a file that can be continued, or a stream."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from nmt_cli.atomic_files import file_appearing_whole
from nmt_cli.commands.pipes import StandardOutput
from nmt_cli.commands.resumable_output import ResumableOutput, resumable_output, stopped
from nmt_cli.corpus.lines import Line
from nmt_cli.corpus.text_files import compressed
from nmt_cli.output_streams import OutputReader, is_stream, reader_of

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
