"""Random numbers that depend only on a key and a position, so they need no state to follow."""

from collections.abc import Iterable

import numpy as np

from nmt_cli.decoding.beams import Array

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
