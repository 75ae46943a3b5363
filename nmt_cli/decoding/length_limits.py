"""How many pieces the sentences of a model may have."""

from typing import NamedTuple

from nmt_cli.model_settings import ModelSettings


class LengthLimits(NamedTuple):
    """The most pieces of a side, without marks of start and end."""

    source: int
    target: int | None  # None: any number


def length_limits(settings: ModelSettings) -> LengthLimits:
    """Return the limits of a model: its ``max_length``, and the positions that it has learned."""
    architecture = settings.architecture
    if architecture.positions != "learned":
        return LengthLimits(settings.max_length, None)
    longest = architecture.max_positions - 1  # the mark of start or end takes one
    return LengthLimits(min(settings.max_length, longest), longest)
