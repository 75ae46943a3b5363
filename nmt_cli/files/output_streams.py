"""Streams with names: stdin and stdout, and outputs that are devices, pipes or open descriptors."""

import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Literal

from nmt_cli.messages.errors import UserError

STANDARD_INPUT, STANDARD_OUTPUT = Path("/dev/stdin"), Path("/dev/stdout")  # a user writes -
STANDARD_STREAMS = {STANDARD_OUTPUT: 1, Path("/dev/stderr"): 2}
DESCRIPTORS = Path("/proc/self/fd")  # /dev/fd is a link to it
CLOSED_STDOUT = Path("/dev/full")  # the command opens it in place of a closed stdout

# What reads an output while it is written; nothing does if it is a file or a device without user.
OutputReader = Literal["terminal", "pipe", "none"]


def is_stream(path: Path) -> bool:
    """Return whether ``path`` is a device, pipe, socket or descriptor, not a file to create."""
    return (
        _descriptor(path) is not None or path.is_char_device() or path.is_fifo() or path.is_socket()
    )


def open_stream(path: Path) -> BinaryIO:
    """Open the stream ``path`` for writing.

    A descriptor is duplicated. Opening its file again would empty the file and overwrite what other
    programs write to it. Raises UserError if the descriptor is not open for writing.
    """
    number = _descriptor(path)
    if number is None:
        return path.open("wb")
    try:
        is_writable = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
    except OSError:  # not open at all
        is_writable = False
    if not is_writable:
        raise UserError(
            f"{path} is not open for writing; open it, for example by {number}>FILE in a shell, or "
            "choose another output."
        )
    return os.fdopen(os.dup(number), "wb")


def reader_of(descriptor: int) -> OutputReader:
    """Return what reads the bytes that are written to ``descriptor``."""
    if os.isatty(descriptor):
        return "terminal"
    mode = os.fstat(descriptor).st_mode
    return "pipe" if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else "none"


def _descriptor(path: Path) -> int | None:
    """Return the number of the descriptor that ``path`` names, which need not be open."""
    if path in STANDARD_STREAMS:
        return STANDARD_STREAMS[path]
    with suppress(OSError):  # the folder is missing
        if path.name.isdecimal() and path.parent.samefile(DESCRIPTORS):
            return int(path.name)
    return None
