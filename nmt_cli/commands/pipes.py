"""Standard input and output as bytes, without Python's own buffers between."""

import os
import select
import sys
from typing import BinaryIO

from nmt_cli.errors import OutputError, UserError


def standard_input() -> BinaryIO:
    """Return the bytes of stdin.

    Not ``sys.stdin.buffer``: a thread may read it, and Python cannot end while a thread holds that.
    """
    if sys.stdin is None:
        raise UserError("standard input is closed; give the text with --input.")
    try:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except OSError:  # a test put something else there
        return sys.stdin.buffer


class StandardOutput:
    """Writes bytes to stdout at once, so that nothing is left to fail when Python ends."""

    def __init__(self) -> None:
        if sys.stdout is None:
            raise OutputError("standard output is closed.")
        try:
            self._descriptor: int | None = sys.stdout.fileno()
        except OSError:  # a test put something else there
            self._descriptor = None

    def write(self, data: bytes) -> None:
        """Write all of ``data``. Raises BrokenPipeError when the reader has gone."""
        if self._descriptor is None:
            sys.stdout.buffer.write(data)
            return
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:  # whoever shares the terminal made it so
                select.select([], [self._descriptor], [])
            except BrokenPipeError:
                raise
            except OSError as error:
                raise OutputError(
                    f"standard output could not be written: {error.strerror}."
                ) from None
