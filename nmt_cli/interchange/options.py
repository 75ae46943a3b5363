"""Options of other programs' models, and the refusal of those that cannot be imported."""

import reprlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nmt_cli.messages.errors import UserError

LARGEST = 10_000_000  # count
LONGEST = 60  # characters of a value in a message


def count(options: Mapping[str, Any], key: str, whose: str, reasons: list[str]) -> int:
    """Return a count of at least one; if it is something else, return one and add a reason."""
    value = options.get(key)
    if type(value) is int and 1 <= value <= LARGEST:
        return value
    reasons.append(f"{whose} has {key} {shown(value)}")
    return 1


def activation(value: Any, ours: Mapping[str, str], key: str, reasons: list[str]) -> str:
    """Return our name of the activation that the option ``key`` has; add a reason if it is none."""
    if isinstance(value, str) and value in ours:
        return ours[value]
    reasons.append(f"its {key} is {shown(value)}")
    return "relu"


def of_sides(key: str, encoder: int, decoder: int) -> dict[str, int]:
    """Return our options of a size ``key`` that the encoder and the decoder have."""
    return {key: encoder} | ({f"decoder_{key}": decoder} if decoder != encoder else {})


def refuse(reasons: Sequence[str]) -> None:
    """Raise ValueError with all ``reasons``, if there are any."""
    if reasons:
        raise ValueError("; ".join(dict.fromkeys(reasons)))


def shown(value: Any) -> str:
    """Return a value as a message shows it."""
    text = ascii(value) if isinstance(value, str) else reprlib.repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Turn ValueError, which has the reasons, into UserError about the model at ``path``.

    A schema raises ValueError too, for values that no architecture has.
    """
    try:
        yield
    except ValueError as error:
        reasons = " ".join(str(error).split())
        raise UserError(f"{path} cannot be imported: {reasons}.") from None
