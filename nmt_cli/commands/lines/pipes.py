"""Standard input and output as bytes, without Python's own buffers."""

import os
import select
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from nmt_cli.files.lines import LineTexts, texts_of
from nmt_cli.files.output_streams import CLOSED_STDOUT, OutputReader, reader_of
from nmt_cli.messages.errors import OutputError, UserError, WrongUsageError

STANDARD_INPUT = Path("-")  # how users name stdin


def standard_input() -> BinaryIO:
    """Return a stream of the bytes of stdin. Raises UserError if stdin is closed.

    It is not ``sys.stdin.buffer``: Python cannot exit while another thread reads from that.
    """
    if sys.stdin is None:
        raise UserError("standard input is closed; give the name of a file instead.")
    try:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except OSError:  # a test replaced stdin by an object without descriptor
        return sys.stdin.buffer


class StandardOutput:
    """Writes bytes to stdout without a buffer, so that no write can fail when Python exits.

    Raises OutputError if stdout is closed.
    """

    def __init__(self) -> None:
        if sys.stdout is None or getattr(sys.stdout, "name", "") == str(CLOSED_STDOUT):
            raise OutputError("standard output is closed.")
        try:
            self._descriptor: int | None = sys.stdout.fileno()
        except OSError:  # a test replaced stdout by an object without descriptor
            self._descriptor = None

    @property
    def reader(self) -> OutputReader:
        """What reads stdout: a terminal, a pipe, or nothing yet."""
        return "none" if self._descriptor is None else reader_of(self._descriptor)

    def write(self, data: bytes) -> None:
        """Write all of ``data``.

        Raises BrokenPipeError if the reader has closed the pipe, OutputError for other failures.
        """
        if self._descriptor is None:
            sys.stdout.buffer.write(data)
            return
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:  # another program made the shared terminal non-blocking
                select.select([], [self._descriptor], [])
            except BrokenPipeError:
                raise
            except OSError as error:
                raise OutputError(
                    f"standard output could not be written: {error.strerror}."
                ) from None


def refuse_stdin_twice(paths: Sequence[Path]) -> None:
    """Raise UserError if more than one of ``paths`` is stdin."""
    if paths.count(STANDARD_INPUT) > 1:
        raise WrongUsageError("- (standard input) can be given once only; name the other file.")


def read_inputs(paths: Sequence[Path]) -> list[list[str]]:
    """Return all lines of each file; ``-`` is stdin.

    Raises UserError if a file cannot be read, or if stdin is given twice.
    """
    refuse_stdin_twice(paths)
    return [
        list(LineTexts(standard_input())) if path == STANDARD_INPUT else texts_of(path)
        for path in paths
    ]


def name_of_input(path: Path) -> str:
    """Return how messages name what ``read_inputs`` reads."""
    return "standard input" if path == STANDARD_INPUT else str(path)
