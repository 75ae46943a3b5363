"""What is wrong with a recipe or a model although each value alone is right."""

from typing import NamedTuple


class Problem(NamedTuple):
    """A value that is wrong only in combination with another: its key, and what is wrong."""

    key: str
    text: str
    beside: str = ""  # the other key; the message adds its place if that is another file
