"""The options of models of other programs, and the reasons why one cannot be imported."""

import reprlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt_cli.messages.errors import UserError

LARGEST = 10_000_000  # count
LONGEST = 60  # characters of a value in a message


@dataclass(frozen=True)
class Options:
    """The values of options by key, and the reasons against them, which are collected."""

    values: Mapping[str, Any]
    reasons: list[str]
    sentence: str = "its {} is {}"  # a reason, with the key and the value

    def refuse(self, key: str, why: str = "") -> None:
        """Add the value of ``key`` as a reason, and ``why``."""
        self.reasons.append(self.sentence.format(key, shown(self.values.get(key))) + why)

    def require(self, allowed: Mapping[str, Sequence[Any]]) -> None:
        """Refuse all values but the ``allowed`` ones; the first of these is the default."""
        for key, values in allowed.items():
            if self.values.get(key, values[0]) not in values:
                self.refuse(key)

    def choose(self, key: str, ours: Mapping[str, str], default: str) -> str:
        """Return our name of a value, which is ``default`` if there is none; refuse any other."""
        value = self.values.get(key, default)
        if isinstance(value, str) and value in ours:
            return ours[value]
        self.refuse(key)
        return ours[default]

    def count(self, key: str, least: int = 1) -> int:
        """Return a count of at least ``least``; refuse anything else."""
        value = self.values.get(key)
        if type(value) is int and least <= value <= LARGEST:
            return value
        self.refuse(key)
        return 1

    def number(self, key: str, default: float) -> float:
        """Return a number, which is ``default`` if there is none; refuse anything else."""
        value = self.values.get(key, default)
        if type(value) in (int, float):
            return value
        self.refuse(key)
        return default


def read_sizes(
    names: Mapping[str, str | Sequence[str]],
    encoder: Options,
    decoder: Options,
    *,
    is_divided: bool,
) -> dict[str, int]:
    """Return the sizes of our architecture.

    ``names`` are the keys of d_model, which both sides have, and of each size of a side: one with
    "{}" for the side, or one for each. If d_model ``is_divided``, heads are d_model / num_heads
    wide.
    """
    of_sides = []
    for place, (side, options) in enumerate({"encoder": encoder, "decoder": decoder}.items()):
        keys = {k: name if isinstance(name, str) else name[place] for k, name in names.items()}
        of_sides.append({ours: options.count(key.format(side)) for ours, key in keys.items()})
    d_model = of_sides[0]["d_model"]
    if is_divided and any(d_model % of_side["num_heads"] for of_side in of_sides):
        encoder.reasons.append(f"its heads do not divide its {names['d_model']} {d_model:,}")
    return merged(*of_sides)


def merged(encoder: Mapping[str, int], decoder: Mapping[str, int]) -> dict[str, int]:
    """Return our options of the sizes of both sides; the decoder has options where it differs."""
    own = {f"decoder_{key}": size for key, size in decoder.items() if size != encoder[key]}
    return {**encoder, **own}


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
