"""A part of a text, as users name it: 3/16 is the third of sixteen."""

import re
from typing import NamedTuple

SHARD = re.compile(r"([0-9]{1,9})/([0-9]{1,9})")


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
