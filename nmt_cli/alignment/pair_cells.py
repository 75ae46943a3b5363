"""Sentence pairs as arrays: a cell for each pair of a source word and a target word.

Legend: P sentence pairs, S source words of all pairs, T target words, C cells. The cells of a pair
follow each other, all source words of its first target word first.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class NumberedPairs(NamedTuple):
    """Some pairs, with their words as numbers; none has an empty side."""

    source_words: Array  # S
    target_words: Array  # T
    source_lengths: Array  # P
    target_lengths: Array  # P

    @classmethod
    def of(cls, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> "NumberedPairs":
        """Return ``pairs``, given by the numbers of the words of both sides."""
        sides = list(zip(*pairs, strict=True))
        return cls(
            *(np.array([word for words in side for word in words], np.int32) for side in sides),
            *(np.array([len(words) for words in side], np.int64) for side in sides),
        )

    @classmethod
    def in_chunks(
        cls, pairs: Iterable[tuple[Sequence[int], Sequence[int]]], most_cells: int
    ) -> "Iterator[NumberedPairs]":
        """Yield ``pairs`` in chunks of at most so many cells; no pair has more."""
        held: list[tuple[Sequence[int], Sequence[int]]] = []
        num_cells = 0
        for source, target in pairs:
            size = len(source) * len(target)
            if num_cells + size > most_cells:
                yield cls.of(held)
                held, num_cells = [], 0
            held.append((source, target))
            num_cells += size
        if held:
            yield cls.of(held)


class Cells(NamedTuple):
    """The cells of some pairs: which words they join, and how far these are from the diagonal."""

    sources: Array  # C, numbers of source words, counted over all pairs
    targets: Array  # C
    distances: Array  # C, |i / m - j / n| for target word i of m and source word j of n, from 1

    @classmethod
    def of(cls, source_lengths: Array, target_lengths: Array) -> "Cells":
        """Return the cells of pairs with these lengths."""
        lengths = np.repeat(source_lengths, target_lengths)  # cells of each target word
        ends = lengths.cumsum()
        firsts = ends - lengths
        first_sources = np.repeat(source_lengths.cumsum() - source_lengths, target_lengths)
        targets = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        within = np.arange(ends[-1], dtype=np.int32) - np.repeat(firsts.astype(np.int32), lengths)
        sources = within + np.repeat(first_sources.astype(np.int32), lengths)
        distances = np.abs(_places(target_lengths)[targets] - _places(source_lengths)[sources])
        return cls(sources, targets, distances)


def _places(lengths: Array) -> Array:
    """Return i / n of each word i, from 1, of sentences with n words; float32."""
    firsts = lengths.cumsum() - lengths
    numbers = np.arange(1, lengths.sum() + 1) - np.repeat(firsts, lengths)
    return (numbers / np.repeat(lengths, lengths)).astype(np.float32)
