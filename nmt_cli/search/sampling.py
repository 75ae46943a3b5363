"""Samples of a model's translations instead of its best ones.

Each sample is a search of its own with a beam of 1, so any number of samples of a sentence share
the slots with those of other sentences.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from nmt_cli.model.compiled.kernels import Array
from nmt_cli.recipe import search_ranges as ranges

SAMPLING = "sampling"  # the key of a sample's random numbers in ``Sentence.rule_data``

# SplitMix64: the n-th number of a key is a hash of key + n * STEP, modulo 2^64.
STEP = 0x9E3779B97F4A7C15
FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
SHIFTS = (30, 27, 31)
BITS_64 = (1 << 64) - 1


def key_of(numbers: Iterable[int]) -> int:
    """Return 64 random bits, equal for equal ``numbers``, which may be any whole numbers."""
    key = 0
    for number in numbers:
        key = _mixed((key ^ number & BITS_64) + STEP & BITS_64)
    return key


def uniforms(keys: Array, positions: Array) -> Array:
    """Return the number in [0, 1) of each key (uint64) at its position, counted from 0."""
    bits = keys + (positions.astype(np.uint64) + np.uint64(1)) * np.uint64(STEP)
    for shift, factor in zip(SHIFTS, FACTORS, strict=False):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    bits ^= bits >> np.uint64(SHIFTS[-1])
    return (bits >> np.uint64(11)) * 2.0**-53


def _mixed(bits: int) -> int:
    for shift, factor in zip(SHIFTS, FACTORS, strict=False):
        bits = (bits ^ (bits >> shift)) * factor & BITS_64
    return bits ^ (bits >> SHIFTS[-1])


class Sampling(NamedTuple):
    """How translations are drawn.

    Of the pieces that the rules allow, the ``top_k`` most probable stay, and of these the fewest
    whose share of the probability reaches ``top_p``. One is drawn with probability proportional to
    p^(1 / ``temperature``), which also decides the shares.
    """

    temperature: float = ranges.TEMPERATURE.default
    top_k: int | None = None
    top_p: float = ranges.TOP_P.default
    seed: int = ranges.SEED.default

    @property
    def fp32_temperature(self) -> float:
        """The temperature, or the least one above 0 in fp32: it leaves only the largest logits."""
        return max(self.temperature, float(np.finfo(np.float32).tiny))

    def refuse_wrong(self, num_samples: int) -> None:
        """Raise UserError if a setting, an option of translate, is out of range."""
        ranges.refuse_outside("--temperature", self.temperature, ranges.TEMPERATURE)
        ranges.refuse_outside("--sample-top-k", self.top_k, ranges.TOP_K)
        ranges.refuse_outside("--sample-top-p", self.top_p, ranges.TOP_P)
        ranges.refuse_outside("--n-best with --sample", num_samples, ranges.NUM_SAMPLES)
