"""Figures of a training as numbers and as short text, also where they are huge."""

import math

LARGEST_PLAIN = 1e6  # numbers from here on are written like 1e+30


def perplexity_of(nll: float) -> float:
    """Return exp(nll), the perplexity of a loss; infinity if it is greater than any float."""
    try:
        return math.exp(nll)
    except OverflowError:
        return math.inf


def as_text(number: float, digits: int) -> str:
    """Return ``number`` as short text, even if it is huge: 12,345.678, 1e+30, inf or nan."""
    return f"{number:,.{digits}f}" if abs(number) < LARGEST_PLAIN else f"{number:.0e}"
