"""The pieces of one side of an imported model, and their rows in the other program's matrices."""

from typing import NamedTuple

import numpy as np

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
