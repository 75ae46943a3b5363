"""How many pieces the sentences of a model may have."""

from typing import NamedTuple

from nmt_cli.model_settings import ModelSettings


class LengthLimits(NamedTuple):
    """The most pieces of a side, without marks of start and end."""

    source: int
    target: int | None  # None: any number


def length_limits(*models: ModelSettings) -> LengthLimits:
    """Return what all of ``models`` take: their ``max_length``, and the positions they learned."""
    architectures = [settings.architecture for settings in models]
    learned = [each.max_positions for each in architectures if each.positions == "learned"]
    longest = min(settings.max_length for settings in models)
    if not learned:
        return LengthLimits(longest, None)
    positions = min(learned) - 1  # the mark of start or end takes one
    return LengthLimits(min(longest, positions), positions)
