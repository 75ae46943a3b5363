"""Reads two texts side by side in windows of pairs: line n of one with line n of the other."""

from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

from nmt_cli.commands.line_windows import STALL_SECONDS, windows
from nmt_cli.corpus.lines import Line
from nmt_cli.corpus.shard_text import ShardText
from nmt_cli.errors import UserError
from nmt_cli.figures import counted


class NamedStream(NamedTuple):
    """A stream of text, and how messages name it."""

    name: str
    stream: BinaryIO | ShardText


def pair_windows(
    texts: tuple[NamedStream, NamedStream],
    expect: Callable[[int, bool], None] = lambda number, is_estimate: None,
) -> Iterator[list[tuple[Line, Line]]]:
    """Yield the pairs in order; at most one window of each text is in memory, and one read ahead.

    A window ends when one of the texts stalls. ``expect`` is as with ``windows``. Raises UserError,
    after the pairs, if one of the texts has more lines, or if it cannot be read.
    """
    readers = [
        windows(
            text.stream,
            stall_seconds=0.0 if text.stream.isatty() else STALL_SECONDS,
            expect=expect,
        )
        for text in texts
    ]
    lines: list[list[Line]] = [[], []]
    num_pairs = 0
    while True:
        lines = [left or next(reader, []) for left, reader in zip(lines, readers, strict=True)]
        count = min(map(len, lines))
        if count == 0:
            break
        yield list(zip(lines[0][:count], lines[1][:count], strict=True))
        lines = [left[count:] for left in lines]
        num_pairs += count
    if any(lines):
        longer, shorter = texts if lines[0] else texts[::-1]
        raise UserError(
            f"{shorter.name} ends after {counted(num_pairs, 'line')}, but {longer.name} has more; "
            "line n of one must be a translation of line n of the other."
        )
