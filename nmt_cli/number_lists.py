"""Lists of numbers as users write them, such as 1,3-5."""

import re
from collections.abc import Sequence

# Not \d, which also matches the digits of other scripts.
PART = re.compile(r"\s*([0-9]{1,9})(?:-([0-9]{1,9}))?\s*")


def parse_number_list(text: str) -> tuple[range, ...]:
    """Return the numbers of a list such as 1,3-5. Raises ValueError if it is not one."""
    ranges = []
    for part in text.split(","):
        match = PART.fullmatch(part)
        if match is None:
            raise ValueError(f"'{text}' is not a list of numbers such as 1,3-5.")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"{first}-{last} counts backwards; write {last}-{first}.")
        ranges.append(range(first, last + 1))
    return tuple(ranges)


def first_outside(ranges: Sequence[range], highest: int) -> int | None:
    """Return a number of ``ranges`` that is not from 1 to ``highest``; None if there is none."""
    ends = [end for numbers in ranges for end in (numbers[0], numbers[-1])]
    return next((end for end in ends if not 1 <= end <= highest), None)
