"""Figures as numbers and as short text, also where they are huge."""

import math

LARGEST_PLAIN = 1e6  # numbers from here on are written like 1e+30
GIBIBYTE = 1 << 30  # bytes
PREFIXES = ("", "k", "M", "G", "T", "P", "E")


def perplexity_of(nll: float) -> float:
    """Return exp(nll), the perplexity of a loss; infinity if it is greater than any float."""
    try:
        return math.exp(nll)
    except OverflowError:
        return math.inf


def as_text(number: float, digits: int) -> str:
    """Return ``number`` as short text, even if it is huge: 12,345.678, 1e+30, inf or nan."""
    return f"{number:,.{digits}f}" if abs(number) < LARGEST_PLAIN else f"{number:.0e}"


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
