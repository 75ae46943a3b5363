"""The Transformer of the search with the layers of the library for CPUs."""

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt_cli.hardware.memory import return_freed_memory
from nmt_cli.model.compiled.c_library import Array, fields
from nmt_cli.model.compiled.layers import CompiledLayers, Sentences, Step, locations_of_parts
from nmt_cli.model.compiled.packed_model import PackedModel
from nmt_cli.search.compiled_logits import CompiledLogits
from nmt_cli.search.search import StepInput
from nmt_cli.search.search_size import room_for

ENCODED_TOKENS = 512  # at once: what the layers compute of them stays in a CPU's cache
# Sentences, until the gaps that those before have left in memory are returned to the kernel. They
# would grow to a quarter of what is in use; filling them again takes less than 0.1 % of the time.
ENCODED_UNTIL_RETURNED = 128
# Entries by which the room of a slot grows: with 16 a third of its memory would not be in use.
SLOT_STEP = 8
MOST_SPARE = 4  # times as much room as is needed stays; the library reads only what is used


class EncodedEntries(NamedTuple):
    """What all hypotheses of a sentence attend to, as ``CompiledLayers`` lays out entries."""

    source: Array
    start: Array  # one entry: that of the start mark


class _Past(ctypes.Structure):
    _fields_ = fields("is_past is_used places ends", "S K E")


class CompiledPast:
    """The past of every hypothesis: the entries of each slot, and who attends to which of them.

    Each step writes the K new entries of a slot into places that are free: those whose entry is in
    the past of no hypothesis. So a few more places are in use than one hypothesis has tokens. When
    hypotheses change places in the beam, the entries stay where they are; only ``is_past`` is
    reordered. If self-attention has a window, entries that it has left are in no past.

    A slot's places depend on its own sentence only, so that its sums have the same order whatever
    other slots hold. The places in use are the first ones, and its own sentence wrote all of them.
    """

    _inherited: NDArray[np.bool_]  # S K E, memory for the next ``is_past``
    _ends: NDArray[np.int64]  # S, behind the entries of each slot
    _pointers: _Past

    def __init__(self, num_slots: int, beam_size: int, layers: CompiledLayers) -> None:
        """Make an empty past for the decoder of ``layers``."""
        self._layers, self._functions = layers, layers.functions
        self._entries: list[Array | None] = [None] * num_slots
        self.locations = layers.locations([None] * num_slots)  # S 2, addresses and rooms
        self.is_past: NDArray[np.bool_] = np.zeros((num_slots, beam_size, SLOT_STEP), np.bool_)
        self._positions: NDArray[np.int64] = np.zeros((num_slots, SLOT_STEP), np.int64)
        self._make_arrays()

    def start(self, slots: Sequence[int], starts: Sequence[Array]) -> None:
        """Let one entry each be the past of all hypotheses in ``slots``."""
        self.is_past[slots] = False
        self.is_past[slots, :, 0] = True
        self._positions[slots, 0] = 0
        room = room_for(1 + self.is_past.shape[1], SLOT_STEP)  # that of a longer past is returned
        for slot, start in zip(slots, starts, strict=True):
            entries = self._entries[slot]
            if entries is None or room != self.locations[slot, 1]:
                entries = self._put(slot, self._layers.new_entries(room))
            self._layers.copy_entries(start, entries)

    def advance(self, parents: Array, positions: Array) -> None:
        """Find places for an entry of each hypothesis.

        It inherits the past of its parent, whose place in the beam is in ``parents`` [S, K]. The
        entries are at ``positions`` [S]; slots at 0 rest, and their past stays as it is.
        """
        rests = positions == 0
        if self._layers.window is not None:
            is_near = self._positions >= positions[:, None] - self._layers.window  # S E
            self.is_past &= is_near[:, None]
        if self.is_past.shape != self._inherited.shape:  # slots came or went, or the room changed
            self._make_arrays()
        pointers, of_step = self._pointers, (parents, rests)
        pointers.is_past = self.is_past.ctypes.data
        end = self._functions.find_places(ctypes.addressof(pointers), *of_step)
        for slot in np.flatnonzero((self._ends > self.locations[:, 1]) & ~rests).tolist():
            old = self._entries[slot]
            assert old is not None, "the slot has a sentence"
            room = room_for(int(self._ends[slot]), SLOT_STEP)
            self._layers.copy_entries(old, self._put(slot, self._layers.new_entries(room)))
        inherited = self._inherited
        room = inherited.shape[2]
        if not end <= room <= MOST_SPARE * room_for(end, SLOT_STEP):
            room = room_for(end, SLOT_STEP)
            inherited = np.empty((*self.is_past.shape[:2], room), np.bool_)
        self._functions.inherit(ctypes.addressof(pointers), *of_step, room, inherited.ctypes.data)
        self._inherited, self.is_past = self.is_past, inherited
        if self._layers.window is not None:
            if more := room - self._positions.shape[1]:
                self._positions = np.pad(self._positions, ((0, 0), (0, max(0, more))))[:, :room]
            slots = np.flatnonzero(positions)[:, None]
            self._positions[slots, self.places[slots[:, 0]]] = positions[slots]

    def keep_slots(self, slots: Sequence[int]) -> None:
        """Drop all slots but these; ``slots[i]`` becomes slot i, with a copy if it is repeated."""
        kept, seen = [self._entries[slot] for slot in slots], set[int]()
        for place, (slot, entries) in enumerate(zip(slots, kept, strict=True)):
            if slot in seen and entries is not None:
                kept[place] = entries.copy()
            seen.add(slot)
        self._entries, self.locations = kept, self._layers.locations(kept)
        self.is_past = self.is_past[list(slots)]
        self._positions = self._positions[list(slots)]

    def _put(self, slot: int, entries: Array) -> Array:
        self._entries[slot] = entries
        self.locations[slot] = self._layers.locations([entries])
        return entries

    def _make_arrays(self) -> None:
        num_slots, beam_size, room = self.is_past.shape
        self._inherited = np.empty(self.is_past.shape, np.bool_)
        self._is_used = np.empty(room + beam_size, np.bool_)
        self._ends = np.empty(num_slots, np.int64)
        self.places = np.empty((num_slots, beam_size), np.int64)
        arrays: list[NDArray[Any]] = [self.is_past, self._is_used, self.places, self._ends]
        self._pointers = _Past(*(each.ctypes.data for each in arrays), num_slots, beam_size, room)


class CompiledStates:
    """The past of every hypothesis as states of recurrent units, in place of ``CompiledPast``."""

    def __init__(self, num_slots: int, beam_size: int, layers: CompiledLayers) -> None:
        """Make room for the decoder of ``layers``."""
        shape = num_slots, beam_size, *layers.state_shape
        self._use(np.zeros(shape, np.float32))

    def start(self, slots: Sequence[int], starts: Sequence[Array]) -> None:
        """Let each of ``starts`` be the state of all hypotheses in its slot."""
        self._states[slots] = np.stack(starts)[:, None]

    def advance(self, parents: Array, positions: Array) -> None:
        """Let hypotheses have the states of their parents [S, K], but not where a slot rests."""
        slots = np.flatnonzero(positions)[:, None]
        self._states[slots[:, 0]] = self._states[slots, parents[slots[:, 0]]]

    def keep_slots(self, slots: Sequence[int]) -> None:
        """Drop all slots but these; ``slots[i]`` becomes slot i."""
        self._use(self._states[list(slots)])

    def _use(self, states: Array) -> None:
        self._states = states  # S K N D
        num_slots, beam_size = states.shape[:2]
        self.places = np.zeros((num_slots, beam_size), np.int64)  # a state needs none
        self.is_past: NDArray[np.bool_] = np.ones((num_slots, beam_size, 1), np.bool_)
        self.locations: Array = locations_of_parts(states)


class CompiledTransformer:
    """A ``StepModel`` whose layers the library for CPUs computes. Not to be shared by threads."""

    def __init__(self, packed: PackedModel) -> None:
        self.c_library = packed.c_library
        self._layers = CompiledLayers(packed)
        self._num_encoded = 0  # sentences, since freed memory was returned
        self._empty(0, 1)

    def reset(self, num_slots: int, beam_size: int) -> None:
        """Make room for ``num_slots`` sentences of ``beam_size`` hypotheses.

        Caches of this size are kept: nothing of a slot is read before ``start`` wrote a sentence
        there.
        """
        if not num_slots or self._past.is_past.shape[:2] != (num_slots, beam_size):
            self._empty(num_slots, beam_size)

    def _empty(self, num_slots: int, beam_size: int) -> None:
        self._layers.free_memory()
        kind = CompiledStates if self._layers.is_recurrent else CompiledPast
        self._past: CompiledPast | CompiledStates = kind(num_slots, beam_size, self._layers)
        self._sources: list[Array | None] = [None] * num_slots
        self._locations = self._layers.locations(self._sources)

    def encode(
        self, sentences: Sequence[Sequence[int]], start_mark: int
    ) -> tuple[list[EncodedEntries], CompiledLogits]:
        """Return what each sentence is for ``start``, and the logits [B, V] of its first token."""
        self._num_encoded += len(sentences)
        if self._num_encoded >= ENCODED_UNTIL_RETURNED:
            self._num_encoded = 0
            return_freed_memory()
        found, firsts = list[EncodedEntries](), []
        for group in _groups(sentences):
            sources = self._layers.encode(Sentences.of(group))
            starts, rows = self._layers.first(start_mark, sources)
            found += map(EncodedEntries, sources, starts)
            firsts.append(rows.copy())
        rows = np.concatenate(firsts)
        return found, CompiledLogits(rows, self.c_library, layers=self._layers)

    def start(self, slots: Sequence[int], encoded: Sequence[EncodedEntries]) -> None:
        """Put each sentence into one of ``slots``; its hypotheses consist of the start mark."""
        for slot, each in zip(slots, encoded, strict=True):
            self._sources[slot] = each.source
        self._locations[slots] = self._layers.locations([each.source for each in encoded])
        self._past.start(slots, [each.start for each in encoded])

    def step(self, state: StepInput) -> CompiledLogits:
        """Return the logits [R, V] of the next tokens in slots that take part.

        They are valid until the next step.
        """
        tokens, parents, positions = state
        past = self._past
        past.advance(parents, positions)
        step = Step(
            np.flatnonzero(positions),
            tokens,
            positions,
            past.places,
            past.locations,
            self._locations,
            past.is_past,
        )
        rows = self._layers.step(step, int(positions.max()) + 1)
        return CompiledLogits(rows, self.c_library, layers=self._layers)

    def keep_slots(self, slots: Sequence[int]) -> None:
        """Drop all slots but these; ``slots[i]`` becomes slot i."""
        self._past.keep_slots(slots)
        self._sources = [self._sources[slot] for slot in slots]
        self._locations = self._locations[list(slots)]

    def forget(self, slots: Sequence[int]) -> None:
        """Do nothing: no entry of an earlier sentence is read."""


def _groups(sentences: Sequence[Sequence[int]]) -> Iterator[list[Sequence[int]]]:
    """Yield ``sentences`` in groups of at most ENCODED_TOKENS together, or of one."""
    group: list[Sequence[int]] = []
    for sentence in sentences:
        if group and sum(map(len, group)) + len(sentence) > ENCODED_TOKENS:
            yield group
            group = []
        group.append(sentence)
    yield group
