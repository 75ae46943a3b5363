"""The Transformer of the search with the layers of the library for CPUs."""

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from math import ceil
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt_cli.model.compiled.kernels import Kernels
from nmt_cli.model.compiled.layers import CompiledLayers, Parts, Step
from nmt_cli.model.transformer import Transformer
from nmt_cli.search.attention_cache import GrowingPast
from nmt_cli.search.incremental import CachedTransformer, Encoded
from nmt_cli.search.search import StepInput
from nmt_cli.search.slot_parts import HeadShape, Run, SlotParts

ENCODED_TOKENS = 512  # at once: what the layers compute of them stays in a CPU's cache
# Lower than usual: compiled attention reads what is used, so that spare room takes memory only.
SHRINK_BELOW = 1 / 4

# On the CPU, whatever torch's default device is.
_empty = partial(torch.empty, device="cpu")
_integers = partial(torch.tensor, dtype=torch.int64, device="cpu")


class _Past(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("is_past", "is_used", "places", "ends")),
        *((name, ctypes.c_long) for name in ("S", "K", "E")),
    )


class CompiledPast(GrowingPast):
    """A ``GrowingPast`` in which a library finds the places of a step."""

    _inherited: NDArray[np.bool_]  # S K E, memory for the next ``is_past``
    _ends: NDArray[np.int64]
    _pointers: _Past
    # If there is one part: the ends for which its room stays, in this version of the parts.
    _fitting, _fitting_version = range(0), -1

    def __init__(
        self, num_slots: int, beam_size: int, shape: HeadShape, like: Tensor, kernels: Kernels
    ) -> None:
        """Make an empty cache with the dtype of ``like``."""
        super().__init__(num_slots, beam_size, shape, like)
        self._functions = kernels.functions
        self._make_arrays()

    def advance(self, parents: Tensor, is_free: Tensor) -> None:
        """Find places for an entry of each hypothesis."""
        if self.is_past.shape != self._inherited.shape:  # slots came or went, or the room changed
            self._make_arrays()
        pointers, of_step = self._pointers, (parents.contiguous(), is_free)
        pointers.is_past = self.is_past.ctypes.data
        end = self._functions.find_places(ctypes.addressof(pointers), *of_step)
        inherited = self._inherited
        room = inherited.shape[2]
        if end not in self._fitting or self._fitting_version != self.parts.version:
            self._make_room(self._ends)
            room = max(self.rooms)
            if len(self.rooms) == 1:
                self._fitting = range(ceil(room * self.parts.shrink_below), room + 1)
            else:
                self._fitting = range(0)
            self._fitting_version = self.parts.version
        if room != inherited.shape[2]:
            inherited = np.empty((*self.is_past.shape[:2], room), np.bool_)
        self._functions.inherit(ctypes.addressof(pointers), *of_step, room, inherited.ctypes.data)
        self._inherited, self.is_past = self.is_past, inherited

    def _make_arrays(self) -> None:
        num_slots, beam_size, room = self.is_past.shape
        self._inherited = np.empty(self.is_past.shape, np.bool_)
        self._is_used = np.empty(room + beam_size, np.bool_)
        self._ends = np.empty(num_slots, np.int64)
        self.places = np.empty((num_slots, beam_size), np.int64)
        arrays: list[NDArray[Any]] = [self.is_past, self._is_used, self.places, self._ends]
        self._pointers = _Past(*(each.ctypes.data for each in arrays), num_slots, beam_size, room)


class CompiledTransformer(CachedTransformer):
    """A ``CachedTransformer`` in which a library of the CPU computes the layers.

    The model's weights are copied when it is made.
    """

    computes_free_slots = False

    _past: CompiledPast
    _lengths: Tensor | None  # of the memory; None: they have changed
    _parts: Parts | None
    _versions: tuple[int, int]  # of the past and the memory when ``_parts`` was made

    def __init__(self, model: Transformer, kernels: Kernels) -> None:
        """``CompiledLayers.supports`` must be true of both."""
        self._kernels = kernels
        self._layers = CompiledLayers(model, kernels)
        super().__init__(model)

    def reset(self, num_slots: int, beam_size: int) -> None:
        """Empty the caches; make room for ``num_slots`` sentences of ``beam_size`` hypotheses.

        Caches of this size are kept: nothing of a slot is read before ``start`` wrote a sentence
        there. New ones take as long as a step.
        """
        if num_slots and self._past.is_past.shape[:2] == (num_slots, beam_size):
            return
        super().reset(num_slots, beam_size)
        self._lengths = self._parts = None
        self._layers.free_memory_of_step()
        for cache in (self._past, self._memory):
            cache.parts.shrink_below = SHRINK_BELOW

    @property
    def _like(self) -> Tensor:
        """A tensor of the caches' dtype, which is fp32 whatever the model's precision."""
        return _empty(0, dtype=torch.float32)

    def _empty_past(self, num_slots: int, beam_size: int) -> CompiledPast:
        return CompiledPast(num_slots, beam_size, self._shape, self._like, self._kernels)

    def encode(
        self, sentences: Sequence[Sequence[int]], start_mark: int
    ) -> tuple[list[Encoded], Tensor]:
        """Return the keys and values of each sentence, and the logits [B, V] of its first token."""
        found, logits = list[Encoded](), []
        for group in _groups(sentences):
            lengths = [len(sentence) for sentence in group]
            tokens = torch.tensor(list(chain.from_iterable(group)), dtype=torch.int64, device="cpu")
            sources = self._layers.encode(tokens, lengths)
            starts, of_group = self._layers.first(start_mark, sources, lengths)
            of_sentences = zip(*(each.split(lengths) for each in sources), strict=True)
            found += map(Encoded, of_sentences, starts)
            logits.append(of_group)
        return found, torch.cat(logits)

    def start(self, slots: Sequence[int], encoded: Sequence[Encoded]) -> None:
        """Cache the keys and values of the sentences in ``slots``, and of their start marks."""
        lengths = [len(each.source[0]) for each in encoded]
        runs, self._lengths = self._memory.make_room(slots, lengths), None
        self._past.forget_ancestry(slots)
        starts = torch.stack([each.start_mark for each in encoded], dim=1)
        sources = list(map(torch.cat, zip(*(each.source for each in encoded), strict=True)))
        self._write(self._memory.parts, runs, lengths, sources)
        self._write(self._past.parts, runs, [1] * len(slots), starts)

    def _write(
        self,
        parts: SlotParts,
        runs: Sequence[Run],
        lengths: Sequence[int],
        of_layers: Iterable[Tensor],
    ) -> None:
        """Write the rows of each layer, of sentences of these ``lengths``, into slots."""
        rows_of_runs = [sum(lengths[run.asked]) for run in runs]
        for number, of_layer in enumerate(of_layers):
            entries = parts.layer(number)
            for run, rows in zip(runs, of_layer.split(rows_of_runs), strict=True):
                self._layers.write(rows, lengths[run.asked], run.slots, entries[run.part])

    def step(self, state: StepInput) -> Tensor:
        """Return the logits [R, V] of the next token of each hypothesis in busy slots."""
        past = self._past
        past.advance(state.parents, state.is_free)
        busy = np.flatnonzero(state.positions.numpy())
        if self._lengths is None:
            self._lengths = _integers(self._memory.lengths)
        step = Step(
            torch.from_numpy(busy),
            state.tokens,
            state.positions,
            places=torch.from_numpy(past.places),
            lengths=self._lengths,
            is_past=torch.from_numpy(past.is_past),
        )
        return self._layers.step(step, self._all_parts(), int(state.positions.max()) + 1)

    def keep_slots(self, slots: Sequence[int]) -> None:
        """Drop all slots but these; ``slots[i]`` becomes slot i."""
        super().keep_slots(slots)
        self._lengths = None

    def _all_parts(self) -> Parts:
        past, memory = self._past.parts, self._memory.parts
        if self._parts is None or self._versions != (past.version, memory.version):
            self._versions = past.version, memory.version
            first_slots = [part.start for part in past.slices(len(self._past.is_past))]
            self._parts = Parts(first_slots, past.all_layers, memory.all_layers)
        return self._parts


def _groups(sentences: Sequence[Sequence[int]]) -> Iterator[list[Sequence[int]]]:
    """Yield ``sentences`` in groups of at most ENCODED_TOKENS together, or of one."""
    group: list[Sequence[int]] = []
    for sentence in sentences:
        if group and sum(map(len, group)) + len(sentence) > ENCODED_TOKENS:
            yield group
            group = []
        group.append(sentence)
    yield group
