"""A line to translate, with what is wanted for this line alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from nmt_cli.decoding.constraints import TextOrPieces


class Request(NamedTuple):
    """A line to translate; None stands for what the translator would take by itself.

    With an ``error``, the line is not translated, and its translation has this error.
    """

    text: str
    line: int | None = None  # the line's number, which decides what is sampled; by default its
    # place, counted from 1, among the lines of the call
    prefix: TextOrPieces | None = None  # what the translation begins with; "": nothing is forced
    required: Sequence[TextOrPieces] = ()  # phrases that occur in it, beside those of all lines
    banned: Sequence[TextOrPieces] = ()  # phrases that do not, beside those of all lines
    n_best: int | None = None  # how many translations
    error: str | None = None


def numbered(lines: Iterable[str | Request], first: int = 1) -> Iterator[Request]:
    """Yield a request for each line, with its number; the first line without one is ``first``."""
    for number, line in enumerate(lines, start=first):
        if isinstance(line, str):
            yield Request(line, line=number)
        else:
            yield line if line.line is not None else line._replace(line=number)
