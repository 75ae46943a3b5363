"""What a translator gets for each line of the input."""

from collections.abc import Callable

from nmt_cli.corpus.lines import Line
from nmt_cli.decoding.request import Request

Reader = Callable[[int, Line], str | Request]


def as_text(number: int, line: Line) -> str:
    """Return the text of the line."""
    return line.text


def as_numbered_text(number: int, line: Line) -> Request:
    """Return the text of the line with its number, which decides what is sampled."""
    return Request(line.text, line=number)
