"""Sentences for the library for CPUs, and what they attend to.

Legend: R tokens of all sentences, N layers, H heads, T queries, E entries.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from nmt_cli.model.compiled.kernels import Array
from nmt_cli.recipe.model_values import StackShape


class Sentences(NamedTuple):
    """The tokens [R] of some sentences, one after another, and the lengths of these."""

    tokens: Array  # int64
    lengths: Sequence[int]

    @classmethod
    def of(cls, sentences: Sequence[Sequence[int]]) -> Sentences:
        """Return sentences of the library from lists of tokens."""
        flat = np.array([*chain.from_iterable(sentences)], np.int64)
        return cls(flat, list(map(len, sentences)))


class WeightsStructure(ctypes.Structure):
    """Where attention weights go."""

    _fields_ = (("places", ctypes.c_void_p), ("of_sentences", ctypes.c_void_p))


class Weights:
    """Memory for the attention weights of some layers: ``arrays`` have N H T E of each sentence."""

    def __init__(
        self,
        shape: StackShape,
        wanted: Sequence[int],
        queries: Sequence[int],
        entries: Sequence[int],
    ) -> None:
        """Make arrays for the ``wanted`` layers that the stack has, counted from 0.

        Sentences have so many ``queries`` (T), which attend to so many ``entries``.
        """
        own = [layer for layer in wanted if layer < shape.num_layers]
        self.arrays = [
            np.empty((len(own), shape.num_heads, *each), np.float32)
            for each in zip(queries, entries, strict=True)
        ]
        self._places = np.full(shape.num_layers, -1)
        self._places[own] = range(len(own))
        self._addresses = np.array([each.ctypes.data for each in self.arrays])
        self.structure = WeightsStructure(self._places.ctypes.data, self._addresses.ctypes.data)
