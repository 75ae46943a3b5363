"""What the tokens and words of an output attend to most in its source.

Legend: T tokens of an output, S tokens of its source, both without ``</s>``.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Words = Sequence[Sequence[int]]  # the numbers of the words that each piece is part of


class Attended(NamedTuple):
    """The places of the greatest attention of one output."""

    tokens: tuple[int, ...]  # of each token: the place of a token of the source
    words: tuple[int, ...]  # of each word: the number of a word of the source
    num_source_words: int


def most_attended(attention: NDArray[Any], targets: Words, sources: Words) -> Attended:
    """Return what the tokens and words of an output with ``attention`` [T, S] attend to most.

    The attention of a word is the mean of that of its pieces, and attention to a word is the sum
    over its pieces. ``targets`` and ``sources`` are the words of the pieces of each side.
    """
    of_targets, of_sources = _membership(targets), _membership(sources)
    num_source_words = of_sources.shape[1]
    sums = of_targets.T @ attention @ of_sources
    words = (sums / of_targets.sum(0)[:, None]).argmax(1).tolist() if num_source_words else []
    tokens = attention.argmax(1).tolist() if attention.shape[1] else []
    return Attended(tuple(tokens), tuple(words), num_source_words)


def _membership(words: Words) -> NDArray[Any]:
    """Return a matrix [pieces, words] with a 1 for each piece that is part of a word."""
    num_words = 1 + max((word for of_piece in words for word in of_piece), default=-1)
    matrix = np.zeros((len(words), num_words))
    for piece, of_piece in enumerate(words):
        matrix[piece, of_piece] = 1.0
    return matrix
