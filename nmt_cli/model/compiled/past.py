"""The past of hypotheses, as the library for CPUs keeps it: see past.c.

Legend: S slots, K beam, E entries.
"""

import ctypes
import weakref
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from nmt_cli.model.compiled.c_library import Array, fields
from nmt_cli.model.compiled.packed_model import Stack


class PastStructure(ctypes.Structure):
    """The structure that functions of the library take."""

    _fields_ = fields("entries is_past ends places positions", "S K E")


class Past:
    """What the hypotheses of each slot attend to in a decoder, in memory of the library.

    Each method raises MemoryError if there is too little memory; then the past is of no more use.
    """

    def __init__(
        self, functions: SimpleNamespace, decoder: Stack, num_slots: int, beam_size: int
    ) -> None:
        """Make an empty past of the hypotheses of ``decoder``."""
        self._functions, self._decoder = functions, decoder
        address = functions.new_past(num_slots, beam_size)
        if address is None:
            raise MemoryError
        weakref.finalize(self, functions.free_past, address)
        self.structure = PastStructure.from_address(address)

    def start(self, slots: Sequence[int], starts: Sequence[Array]) -> None:
        """Begin a sentence in each of ``slots``, whose hypotheses consist of the start mark.

        ``starts`` are what ``CompiledLayers.first`` kept for each: the past of all its hypotheses.
        """
        addresses = np.array([each.ctypes.data for each in starts], np.int64)
        self._change("start_past", np.array(slots, np.int64), addresses, len(slots))

    def advance(self, parents: Array, positions: Array) -> None:
        """Find places for an entry of each hypothesis, which inherits the past of its parent.

        Their places in the beam are in ``parents`` [S, K]. The entries are at ``positions`` [S];
        slots at 0 rest, and their past stays as it is.
        """
        self._change("advance_past", parents, positions)

    def keep_slots(self, slots: Sequence[int]) -> None:
        """Drop all slots but these; ``slots[i]`` becomes slot i, with a copy if it is repeated."""
        self._change("keep_past", np.array(slots, np.int64), len(slots))

    def _change(self, function: str, *arguments: Any) -> None:
        addresses = ctypes.addressof(self._decoder), ctypes.addressof(self.structure)
        if getattr(self._functions, function)(*addresses, *arguments) < 0:
            raise MemoryError
