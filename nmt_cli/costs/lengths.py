"""The lengths of the sentences on which costs depend."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nmt_cli.costs.flops import LengthSums, sum_lengths

ASSUMED_LENGTH = 27  # pieces: about the mean of WMT 2014 English-German with 37,000 of them
PAIRS_AT_ONCE = 1 << 20

Integers = npt.NDArray[np.integer[Any]]


class SentenceLengths(NamedTuple):
    """The sums of the lengths of sentence pairs, in tokens; each sentence has its ``</s>``."""

    sums: LengthSums
    pairs: int
    origin: str  # for the user: where the lengths come from
    pairs_per_epoch: float | None = None  # with the weights of corpora; None without text

    @property
    def mean_source(self) -> float:
        """The mean length of a source sentence."""
        return self.sums.source / self.pairs

    @property
    def mean_target(self) -> float:
        """The mean length of a target sentence."""
        return self.sums.target / self.pairs


def equal_pairs(source: int, target: int, origin: str) -> SentenceLengths:
    """Return the lengths of text whose pairs all have so many source and target tokens."""
    return SentenceLengths(sum_lengths([source], [target]), 1, origin)


def sum_of_text(source: Integers, target: Integers) -> LengthSums:
    """Return the sums of a text of any size; ``source`` and ``target`` are lengths [pairs]."""
    parts = (
        sum_lengths(source[start : start + PAIRS_AT_ONCE], target[start : start + PAIRS_AT_ONCE])
        for start in range(0, len(source), PAIRS_AT_ONCE)
    )
    return LengthSums(*map(sum, zip(*parts, strict=True)))
