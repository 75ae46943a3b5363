"""Figures as text: counts, huge numbers, durations, lists of numbers, tables."""

import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

LARGEST_PLAIN = 1e6  # numbers from here on are written like 1e+30
GIBIBYTE = 1 << 30  # bytes
PREFIXES = ("", "k", "M", "G", "T", "P", "E")


def perplexity_of(nll: float) -> float:
    """Return exp(nll), the perplexity of a loss; infinity if it is greater than any float."""
    try:
        return math.exp(nll)
    except OverflowError:
        return math.inf


def short_number(number: float, digits: int) -> str:
    """Return ``number`` as short text, even if it is huge: 12,345.678, 1e+30, inf or nan."""
    return f"{number:,.{digits}f}" if abs(number) < LARGEST_PLAIN else f"{number:.0e}"


def null_if_not_finite(value: Any) -> Any:
    """Return ``value`` with None for NaN and infinity, which JSON does not have."""
    if isinstance(value, Mapping):
        return {key: null_if_not_finite(below) for key, below in value.items()}
    if isinstance(value, (list, tuple)):
        return [null_if_not_finite(below) for below in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number of things: 1 line, 2,000 lines; 1 leaf, 2 leaves (``plural``)."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def with_prefix(number: float, unit: str) -> str:
    """Return ``number`` in three digits, with a prefix of its unit: 252 MB, 9.53 TFLOP."""
    for prefix in PREFIXES[:-1]:
        if number < 999.5:  # what is rounded to a thousand gets the next prefix
            return f"{number:.3g} {prefix}{unit}"
        number /= 1000
    return f"{number:,.3g} {PREFIXES[-1]}{unit}"


def aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the rows as lines: the first column is aligned left, all others right."""
    table = list(rows)
    first, *others = (max(map(len, column)) for column in zip(*table, strict=True))
    return [
        "  ".join([row[0].ljust(first), *map(str.rjust, row[1:], others)]).rstrip() for row in table
    ]


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


UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
NUMBER = r"\d+(?:\.\d+)?"
DURATION = re.compile("".join(rf"(?:({NUMBER}){unit})?" for unit in UNITS))


def parse_duration(text: str) -> float:
    """Return the seconds in ``text``. Raises ValueError with a message for the user."""
    if re.fullmatch(NUMBER, text):
        raise ValueError(f"{text} needs a unit; write {text}h, {text}m or {text}s.")
    match = DURATION.fullmatch(text)
    if match is None or not text:
        raise ValueError(f"{text!r} is not a time such as 3h30m, 45m or 90s.")
    parts = [float(part or 0) for part in match.groups()]
    return sum(part * unit for part, unit in zip(parts, UNITS.values(), strict=True))


def duration_text(seconds: float) -> str:
    """Return text such as 3h30m, from which ``parse_duration`` gets the seconds again."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    parts = [(hours, "h"), (minutes, "m"), (rest, "s")]
    return "".join(f"{number:g}{unit}" for number, unit in parts if number) or "0s"


def time_text(seconds: float) -> str:
    """Return a time to read, rounded: 43 s, 3 h 05 min."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60:,} h {minutes % 60:02d} min"


def moment_text(at: float) -> str:
    """Return the date and time of day, in UTC, of seconds since 1970: 2026-01-31 23:05 UTC."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))
