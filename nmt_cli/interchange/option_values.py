"""Checks the values of another program's options, and shows them in messages."""

import reprlib
from collections.abc import Mapping
from typing import Any

LARGEST = 10_000_000  # count
LONGEST = 60  # characters of a value in a message


def count(options: Mapping[str, Any], key: str, whose: str, reasons: list[str]) -> int:
    """Return a count of at least one; if it is something else, return one and add a reason."""
    value = options.get(key)
    if type(value) is int and 1 <= value <= LARGEST:
        return value
    reasons.append(f"{whose} has {key} {shown(value)}")
    return 1


def shown(value: Any) -> str:
    """Return a value as a message shows it."""
    text = ascii(value) if isinstance(value, str) else reprlib.repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
