"""Which pairs appear in an epoch, and how often: a function of weights, seed and epoch."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt_cli.corpus.binarized import Indices
from nmt_cli.messages.errors import UserError

Corpora = Sequence[tuple[int, float]]  # (number of pairs, weight) of each
MOST_PAIRS = 2**32 - 2**20  # of an epoch: its plan has 4 bytes for each, and shares are rounded
ROUNDS = 4  # with fewer, shares differ visibly from random ones


class EpochSlice(NamedTuple):
    """Some pairs of the list of an epoch."""

    pairs: Indices
    copies: Indices  # how often each appears earlier in the list


class EpochPairs:
    """The list of the pairs of an epoch, not in memory: one corpus after the other.

    A corpus of weight w is there floor(w) times, followed by a share w - floor(w) of its pairs.
    The share is the next part of an order of the corpus that ``seed`` draws once for all epochs, so
    each pair is in one of 1 / (w - floor(w)) successive shares.
    """

    def __init__(self, corpora: Corpora, seed: int, epoch: int) -> None:
        self._seed = seed
        self._is_plain = all(weight == 1.0 for _, weight in corpora)
        shares = [_bounds_of_share(size, weight, epoch) for size, weight in corpora]
        self._sizes = np.array([size for size, _ in corpora], np.int64)
        self._repeated = np.array([math.floor(weight) for _, weight in corpora], np.int64)
        self._first_pairs = np.cumsum(self._sizes) - self._sizes
        self._firsts_of_shares = [first for first, _ in shares]
        of_shares = np.array([end - first for first, end in shares], np.int64)
        lengths = self._repeated * self._sizes + of_shares
        self._ends = np.cumsum(lengths)
        self._firsts = self._ends - lengths

    def __len__(self) -> int:
        return int(self._ends[-1])

    def at(self, places: Indices) -> EpochSlice:
        """Return what is at ``places`` of the list."""
        if self._is_plain:
            return EpochSlice(places, np.zeros_like(places))
        corpora = np.searchsorted(self._ends, places, side="right")
        in_corpora, sizes = places - self._firsts[corpora], self._sizes[corpora]
        copies = in_corpora // sizes
        lines = in_corpora - copies * sizes
        in_shares = np.flatnonzero(copies == self._repeated[corpora])
        of_shares = corpora[in_shares]
        for corpus in np.flatnonzero(np.bincount(of_shares)).tolist():
            chosen = in_shares[of_shares == corpus]
            size = int(self._sizes[corpus])
            in_order = (lines[chosen] + self._firsts_of_shares[corpus] % size) % size
            drawn = np.random.SeedSequence(self._seed, spawn_key=(corpus,))
            lines[chosen] = _random_order(in_order, size, drawn)
        return EpochSlice(self._first_pairs[corpora] + lines, copies)


def _bounds_of_share(size: int, weight: float, epoch: int) -> tuple[int, int]:
    """Return where the share of an epoch begins and ends in all shares, one after the other."""
    # Exact, so that no pair is left out between the shares of two epochs.
    of_each = Fraction(weight) % 1 * size
    first, end = (math.floor(of_each * number + Fraction(1, 2)) for number in (epoch, epoch + 1))
    return first, end


def _random_order(places: Indices, size: int, drawn: np.random.SeedSequence) -> Indices:
    """Return the numbers at ``places`` of a random order of all numbers below ``size``.

    Each round maps all numbers of so many bits to different ones: by a sum and a product with an
    odd number, modulo a power of two, and by a shift. They are repeated for what is too large.
    """
    bits = max(1, (size - 1).bit_length())
    mask, shift = np.uint32((1 << bits) - 1), np.uint32((bits + 1) // 2)
    summands, factors = drawn.generate_state(2 * ROUNDS, np.uint32).reshape(2, ROUNDS)

    def mapped(numbers: NDArray[np.uint32]) -> NDArray[np.uint32]:
        for summand, factor in zip(summands, factors | np.uint32(1), strict=True):
            numbers = (numbers + summand) * factor & mask
            numbers ^= numbers >> shift
        return numbers

    found = mapped(places.astype(np.uint32))
    too_large = np.flatnonzero(found >= size)
    while len(too_large):
        found[too_large] = mapped(found[too_large])
        too_large = too_large[found[too_large] >= size]
    return found.astype(np.int64)


def refuse_wrong_weights(corpora: Corpora, key: str) -> None:
    """Raise UserError if the weights of ``corpora``, below ``key``, leave no pair or too many."""
    if all(size * weight < 1 for size, weight in corpora):
        raise UserError(f"the weights of {key} leave an epoch without a pair; raise one of them.")
    total = sum(size * weight for size, weight in corpora)
    if total > MOST_PAIRS:
        raise UserError(
            f"by the weights of {key} an epoch would have {round(total):,} pairs; lower them, so "
            f"that it has at most {MOST_PAIRS:,}."
        )
