"""A part of a text file for one of several jobs; the parts follow each other in the file.

The outputs of contiguous parts are joined by ``cat``, compressed or not, whatever the number of
output lines for each line is. A line belongs to the part in which its first byte is, so that the
parts have about the same number of bytes; all jobs find the same borders without exchanging
anything.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from nmt_cli.files.text_files import READ_AT_ONCE, SUFFIXES, open_text
from nmt_cli.messages.errors import UserError


class Shard(NamedTuple):
    """The ``number``-th of ``total`` parts, counted from 1."""

    number: int
    total: int

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"


def parse_shard(text: str) -> Shard:
    """Return the part that ``text`` names. Raises ValueError if it names none."""
    match = SHARD.fullmatch(text)
    shard = Shard(int(match[1]), int(match[2])) if match else Shard(0, 0)
    if not 1 <= shard.number <= shard.total:
        raise ValueError(f"'{text}' is not a part such as 3/16, from 1/16 to 16/16.")
    return shard


class ShardText:
    """Reads the lines of a part from the stream of the whole text."""

    def __init__(self, stream: BinaryIO, size: int, shard: Shard) -> None:
        """``size`` is the number of bytes of the whole text. Reads up to the part's first line."""
        self.name = getattr(stream, "name", None)
        self.num_lines_before = 0  # in the whole text
        self._stream, self._end = stream, size * shard.number // shard.total
        self._place = 0
        self._skip(size * (shard.number - 1) // shard.total)
        self._start = self._place

    def readline(self, size: int) -> bytes:
        """Return the next line of the part, at most ``size`` bytes; nothing at its end."""
        if self._place >= self._end:
            return b""
        line = self._stream.readline(size)
        self._place += len(line)
        return line

    def expected(self) -> int:
        """Return the number of bytes of the part, without the end of its last line."""
        return max(0, self._end - self._start)

    def isatty(self) -> bool:
        """Return False: the text is a file."""
        return False

    def _skip(self, border: int) -> None:
        """Read up to the first line that begins at or behind ``border``."""
        while self._place < border - 1:
            block = self._stream.read(min(READ_AT_ONCE, border - 1 - self._place))
            if not block:
                return
            self._place += len(block)
            self.num_lines_before += block.count(b"\n")
        while border and (block := self._stream.readline(READ_AT_ONCE)):
            self._place += len(block)
            if block.endswith(b"\n"):
                self.num_lines_before += 1
                return


@contextmanager
def open_shard(path: Path, shard: Shard) -> Iterator[ShardText]:
    """Yield the text of a part of a plain, .gz, .xz or .zst file.

    Raises UserError if the file cannot be opened or is compressed in another way, and for a pipe,
    whose length is unknown.
    """
    if path.exists() and not path.is_file():
        raise UserError(f"--shard needs a file, and {path} is none: its length is unknown.")
    with open_text(path) as stream:
        size = path.stat().st_size
        if path.suffix in SUFFIXES:
            size = sum(map(len, iter(lambda: stream.read(READ_AT_ONCE), b"")))
    with open_text(path) as stream:
        yield ShardText(stream, size, shard)


SHARD = re.compile(r"([0-9]{1,9})/([0-9]{1,9})")
