"""The length penalty of other programs that is nearest to ours."""

from nmt_cli.model_settings import ModelSettings

# Penalties are compared at outputs of this many pieces.
TYPICAL_LENGTH = 25


def nearest_length_penalty(settings: ModelSettings) -> float:
    """Return the exponent p for which length^p grows as our penalty does at a typical length."""
    alpha = settings.decoding.length_penalty
    return round(alpha * TYPICAL_LENGTH / (5 + TYPICAL_LENGTH), 3)
