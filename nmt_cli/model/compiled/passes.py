"""Passes of the library over whole sentences: all rows of an encoder or a decoder in one call.

Legend: R rows of all sentences, D d_model, N layers, H heads, T queries, E entries.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import chain
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nmt_cli.hardware.cpu import num_threads
from nmt_cli.model.compiled.kernels import FLOATS, INTEGERS, Array
from nmt_cli.model.compiled.packed_model import Stack
from nmt_cli.recipe.model_config import StackShape

if TYPE_CHECKING:
    from nmt_cli.model.compiled.layers import CompiledLayers

# Rows whose logits are in memory together: enough to keep the output's product busy.
SCORED_AT_ONCE = 128


class _Weights(ctypes.Structure):
    _fields_ = (("places", ctypes.c_void_p), ("of_sentences", ctypes.c_void_p))


class _Sentences(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("tokens", "lengths", "sources", "source_lengths")),
        *((name, _Weights) for name in ("within", "to_sources")),
        *((name, ctypes.c_long) for name in ("B", "R", "E")),
    )


class Sentences(NamedTuple):
    """The tokens [R] of some sentences, one after another, and the lengths of these."""

    tokens: Array  # int64
    lengths: Sequence[int]

    @classmethod
    def of(cls, sentences: Sequence[Sequence[int]]) -> Sentences:
        """Return sentences of the library from lists of tokens."""
        flat = np.array([*chain.from_iterable(sentences)], np.int64)
        return cls(flat, list(map(len, sentences)))


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

        Sentences have so many ``queries``, which attend to so many ``entries``.
        """
        own = [layer for layer in wanted if layer < shape.num_layers]
        self.arrays = [
            np.empty((len(own), shape.num_heads, *each), np.float32)
            for each in zip(queries, entries, strict=True)
        ]
        self._places = np.full(shape.num_layers, -1)
        self._places[own] = range(len(own))
        self._addresses = np.array([each.ctypes.data for each in self.arrays])
        self.structure = _Weights(self._places.ctypes.data, self._addresses.ctypes.data)


class Memory(NamedTuple):
    """What the decoder attends to: for each layer the keys and values of all sources."""

    of_layers: Sequence[Array]  # R H*(W+X)
    lengths: Sequence[int]  # of the sources


class Pass(NamedTuple):
    """A pass over sentences; in a decoder they have a memory, and rows see no later ones."""

    sentences: Sentences
    memory: Memory | None = None
    within: Weights | None = None  # where what sentences attend to within themselves goes
    to_memory: Weights | None = None

    def run(self, functions: SimpleNamespace, stack: Stack, embedding: int) -> Array:
        """Return the rows [R, D] after all layers of ``stack``.

        The structures of the library are the ``stack``, and the one at the address ``embedding``.
        """
        tokens, lengths = self.sentences.tokens, np.array(self.sentences.lengths)
        made = _Sentences(*map(INTEGERS.from_param, (tokens, lengths)), B=len(lengths))
        made.R = len(tokens)
        made.E = lengths.max()
        if self.memory is not None:
            addresses = np.array([FLOATS.from_param(each).value for each in self.memory.of_layers])
            source_lengths = np.array(self.memory.lengths)
            made.sources, made.source_lengths = addresses.ctypes.data, source_lengths.ctypes.data
            made.E = max(lengths.max(), source_lengths.max())
        for name, weights in (("within", self.within), ("to_sources", self.to_memory)):
            if weights is not None:
                setattr(made, name, weights.structure)
        stack.threads = num_threads()
        rows = np.empty((len(tokens), stack.D), np.float32)
        size = functions.workspace_size(ctypes.addressof(stack), len(tokens), made.E)
        workspace = np.empty(size, np.float32)
        functions.compute_rows(
            *(ctypes.addressof(stack), embedding, ctypes.addressof(made), rows, workspace)
        )
        return rows


class GivenTargets:
    """The passes over given targets of a model. Not to be shared between threads."""

    def __init__(self, layers: CompiledLayers) -> None:
        self._layers = layers

    def encode(self, sources: Sentences, within: Weights | None = None) -> Memory:
        """Return the memory of ``sources``."""
        return Memory(self._layers.encode(sources, within), sources.lengths)

    def decode(
        self,
        targets: Sentences,
        memory: Memory,
        within: Weights | None = None,
        to_memory: Weights | None = None,
    ) -> Array:
        """Return the decoder's output [R, D] after the tokens of ``targets``."""
        embedding = self._layers.target.address(max(targets.lengths))
        made = Pass(targets, memory, within, to_memory)
        return made.run(self._layers.functions, self._layers.decoder, embedding)

    def token_scores(self, rows: Array, tokens: Array) -> Array:
        """Return the log-probabilities [R] of ``tokens`` [R] by the ``rows`` that predict them."""
        functions, output = self._layers.functions, self._layers.packed.output
        most = min(len(rows), SCORED_AT_ONCE)
        logits = np.empty((most, output.O), np.float32)
        rounded = np.empty(functions.rounded_size(most, output.I), np.float32)
        scores = np.empty(len(rows), np.float32)
        functions.score_tokens(
            *(ctypes.addressof(output), rows, tokens, len(rows), most),
            *(logits, rounded, num_threads(), scores),
        )
        return scores
