"""The pieces of one side of an imported model, and their rows in the other program's matrices."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nmt_cli.corpus.whitespace_tokenizer import CONTROL
from nmt_cli.interchange.arrays import Array

# The logit of a piece that the model lacks: so low that its exponential is 0 beside any other, and
# not lower, because label smoothing adds up the log-probabilities of all pieces.
NEVER = -100.0


class Vocabulary(NamedTuple):
    """The pieces of one side."""

    pieces: list[str]
    rows: list[int]  # of the pieces in the model's matrices; -1: a mark that the model lacks

    def rows_of(self, matrix: Array, missing: float = 0.0) -> Array:
        """Return the rows of a matrix, or the numbers of a vector, in the order of the pieces."""
        rows = np.asarray(self.rows)
        found = matrix[np.maximum(rows, 0)]
        found[rows < 0] = missing
        return found


def marks_first(pieces: Sequence[str], marks: Sequence[int]) -> Vocabulary:
    """Return ``pieces`` behind our three marks, whose rows are ``marks``; -1 if there is none."""
    others = [row for row in range(len(pieces)) if row not in marks]
    return Vocabulary([*CONTROL, *(pieces[row] for row in others)], [*marks, *others])
