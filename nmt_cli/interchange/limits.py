"""What another program with an export of a model can do; nothing here needs torch."""

from nmt_cli.recipe.model_settings import ModelSettings

FEWEST_POSITIONS = 2_048  # rows of a table of sinusoids
TYPICAL_LENGTH = 25  # penalties are compared at outputs of this many pieces


def num_positions(settings: ModelSettings) -> int:
    """Return the length of the longest sentence that an export of the model has positions for."""
    if settings.architecture.positions == "learned":
        return settings.architecture.max_positions
    longest_output = settings.max_length + settings.decoding.max_extra_length
    return max(FEWEST_POSITIONS, longest_output + 2)


def nearest_exponent(alpha: float) -> float:
    """Return the p for which length^p grows as our penalty does at a typical length."""
    return round(alpha * TYPICAL_LENGTH / (5 + TYPICAL_LENGTH), 3)
