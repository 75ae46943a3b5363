"""Standard output as bytes, without Python's own buffers, and the name of standard input."""

import os
import select
import sys
from pathlib import Path

from nmt_cli.files.output_streams import CLOSED_STDOUT, STANDARD_INPUT, OutputReader, reader_of
from nmt_cli.messages.errors import OutputError


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


def name_of_input(path: Path) -> str:
    """Return how messages name an input."""
    return "standard input" if path == STANDARD_INPUT else str(path)
