"""A part of the output's matrix of a ``PackedModel``, for products by few of its tokens.

Legend: V vocabulary, I inputs of the matrix.
"""

import ctypes
from collections.abc import Sequence

import numpy as np

from nmt_cli.model.compiled.kernels import Array
from nmt_cli.model.compiled.packed_model import ALIGNMENT, TYPES, Matrix, PackedModel

# Tokens of sentences that have left stay, and are computed, until there are so many times as many
# tokens as were last needed. To copy a token's weights takes about as long as to multiply a few
# rows by them.
MOST_KEPT = 1.25
LEAST_ROOM = 64  # tokens


class OutputColumns:
    """Copies of the weights of all tokens that some sentences may be continued by.

    A logit is the same as by the whole matrix, to the last bit. Not to be shared between threads.
    """

    def __init__(self, packed: PackedModel) -> None:
        self._packed, self._functions = packed, packed.kernels.functions
        self.places: Array = np.full(packed.vocabulary_size, -1, np.int64)  # V; -1: not here
        self._held = dict[int, Array]()  # the lists of the last call, by their ids
        self._make_room(0)

    def hold(self, lists: Sequence[Array]) -> None:
        """Let the weights of all tokens in ``lists`` be here; each is ascending, and never changes.

        Those of earlier lists may leave.
        """
        new = [each for each in lists if id(each) not in self._held]
        if not new:
            return
        tokens = self._tokens_of(new)
        missing = tokens[self.places[tokens] < 0]
        if self.matrix.O + len(missing) > self._room:
            missing = self._tokens_of(lists)
            self._make_room(max(LEAST_ROOM, int(MOST_KEPT * len(missing))))
        self._held = {id(each): each for each in lists}
        first = self.matrix.O
        self.places[missing] = np.arange(first, first + len(missing))
        self.matrix.O += len(missing)
        self._functions.copy_outputs(
            *(ctypes.addressof(self._packed.output), missing, len(missing)),
            *(ctypes.addressof(self.matrix), first),
        )

    def _tokens_of(self, lists: Sequence[Array]) -> Array:
        """Return the tokens in any of ``lists``, ascending; faster than ``numpy.unique``."""
        is_listed = np.zeros(len(self.places), np.bool_)
        is_listed[np.concatenate(lists)] = True
        return np.flatnonzero(is_listed)

    def _make_room(self, room: int) -> None:
        """Make an empty matrix with room for so many tokens."""
        whole, kind = self._packed.output, TYPES[self._packed.precision]
        size = self._functions.size_of_blocks(kind, whole.I, room)
        self._blocks: Array = np.zeros(size + ALIGNMENT, np.uint8)
        self._vectors: Array = np.zeros((3, room), np.float32)  # bias, scales and sums
        aligned = -(-self._blocks.ctypes.data // ALIGNMENT) * ALIGNMENT
        bias, scales, sums = (each.ctypes.data for each in self._vectors)
        parts = aligned, bias if whole.bias else None, scales, sums
        self.matrix, self._room = Matrix(*parts, kind, whole.I, 0), room
        self.places[:] = -1
