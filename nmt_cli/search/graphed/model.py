"""The Transformer on a GPU, whose step of a search is one CUDA graph.

A step of base launches hundreds of small kernels, which takes a CPU longer than their work takes a
GPU. A graph launches them at once, but only for the shapes and addresses that it was recorded with.
So searches have a few sizes, and the graphs of each are kept.

Legend: S slots, K beam, E entries of a slot.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor

from nmt_cli.hardware.device import GraphRecorder, Readback, finish_work, sent_to
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe.model_values import StackShape
from nmt_cli.search.attention_cache import KeysValues, Memory, Past
from nmt_cli.search.beams import Beams
from nmt_cli.search.graphed.device_beams import DeviceBeams
from nmt_cli.search.graphed.kernel_check import kernels_work
from nmt_cli.search.incremental import Encoded, IncrementalTransformer, RecurrentPast
from nmt_cli.search.sentences import SearchSettings

LEAST_ROOM = 32  # entries of a slot; smaller rooms would need more graphs and save little
# Places of the past that a search reserves for each piece of the longest source, at most one for
# each hypothesis of the beam: a token takes about 1.5 places, and most outputs are at most twice as
# long as their source.
PLACES_OF_A_PIECE = 3
MOST_GRAPHS = 64  # the one used longest ago is dropped; they do not hold the caches


def size_for(number: int) -> int:
    """Return the least size that holds ``number``, of 1, 2, 3, 4, 6, 8, 12, 16, 24 and so on."""
    power = 1 << (number - 1).bit_length()
    return power * 3 // 4 if power >= 4 and number <= power * 3 // 4 else power


def size_within(number: int) -> int:
    """Return the largest size that is not above ``number``, which is at least 1."""
    power = 1 << (number.bit_length() - 1)
    return power * 3 // 2 if number >= power * 3 // 2 else power


class StepShape(NamedTuple):
    """The sizes of a search."""

    num_slots: int
    past_room: int  # E of the past
    memory_room: int  # E of the sources


class Storage:
    """The memory of a cache, zero at first; caches of several shapes share it, one at a time."""

    def __init__(self, shape: StackShape, like: Tensor) -> None:
        self._shape, self._like = shape, like
        self.num_places = 0  # for entries of all slots
        self._layers: list[tuple[Tensor, Tensor]] = []

    def grow(self, num_places: int) -> None:
        """Make new tensors with room for so many entries, or more if that saves later growth.

        If a view of the old ones is left, both are in memory.
        """
        self._layers, shape = [], self._shape
        # Twice as much, because all graphs have to be recorded again.
        self.num_places = num_places = max(num_places, 2 * self.num_places)
        keys, values = (
            num_places * shape.num_heads * width for width in (shape.key_width, shape.value_width)
        )
        self._layers = [
            (self._like.new_zeros(keys), self._like.new_zeros(values))
            for _ in range(shape.num_layers)
        ]

    def layers(self, num_slots: int, room: int) -> list[KeysValues]:
        """Return the memory as the keys and values of each layer."""
        shape = self._shape
        heads, d_k, d_v = (num_slots, shape.num_heads), shape.key_width, shape.value_width
        return [
            KeysValues(
                keys[: math.prod(heads) * d_k * room].view(*heads, d_k, room),
                values[: math.prod(heads) * room * d_v].view(*heads, room, d_v),
            )
            for keys, values in self._layers
        ]


class GraphedStep:
    """A step that is recorded once and repeated, and the tensors that keep their addresses for it.

    Steps of other shapes use the same memory for their caches.
    """

    def __init__(
        self, shape: StepShape, beams: DeviceBeams, past: Past | RecurrentPast, memory: Memory
    ) -> None:
        self.shape, self.beams, self.past, self.memory = shape, beams, past, memory
        self.repeat: Callable[[], None]  # set when the step has been recorded

    def clear(self) -> None:
        """Free all slots."""
        self.beams.clear()
        for each in (*self.past.of_slots, *self.past.of_places):
            each.zero_()
        self.memory.lengths.fill_(1)

    def copied(
        self, slots: Sequence[int], other: StepShape
    ) -> tuple[list[Tensor], list[Tensor], list[KeysValues]]:
        """Return a copy of ``slots``, as much of each as a step of ``other`` shape can hold.

        First the tensors of ``_rows``, then those of the places, then all caches.
        """
        at = sent_to(self.memory.lengths.device, slots)
        past_room = min(self.shape.past_room, other.past_room)
        memory_room = min(self.shape.memory_room, other.memory_room)
        caches = [layer.selected(at, past_room) for layer in self.past.layers]
        caches += [layer.selected(at, memory_room) for layer in self.memory.layers]
        places = [each[at][..., :past_room] for each in self.past.of_places]
        return [each[at] for each in self._rows], places, caches

    def put(self, rows: list[Tensor], places: list[Tensor], caches: list[KeysValues]) -> None:
        """Replace all slots by what ``copied`` returned."""
        for own, other in zip(self._rows, rows, strict=True):
            own.copy_(other)
        for own, other in zip(self.past.of_places, places, strict=True):
            own.zero_()
            own[..., : other.shape[-1]] = other
        for layer, copy in zip((*self.past.layers, *self.memory.layers), caches, strict=True):
            layer.keys[..., : copy.room] = copy.keys
            layer.values[:, :, : copy.room] = copy.values
            # NaN of the last shape's entries would reach the sums, even if masked.
            layer.keys[..., copy.room :] = 0.0
            layer.values[:, :, copy.room :] = 0.0

    @property
    def _rows(self) -> list[Tensor]:
        return [*self.beams.state, self.memory.lengths, *self.past.of_slots]


class GraphedTransformer(IncrementalTransformer):
    """Steps of beam search, with the choice of hypotheses, that follow each other without the CPU.

    Between searches it keeps the memory of the largest caches, and the graphs, until ``release``.
    Not to be shared between threads.
    """

    def __init__(self, model: Transformer, settings: SearchSettings) -> None:
        super().__init__(model)
        self._settings = settings
        self._recorder = GraphRecorder(self._device)
        self._present: GraphedStep | None = None
        self._steps: dict[StepShape, GraphedStep] = {}  # the one used last comes last
        self.release()

    def release(self) -> None:
        """Give up all memory."""
        self._forget_steps()
        if self._recorder.device != self._device:
            self._recorder = GraphRecorder(self._device)
        like = self._model.output_weight
        self._storages = Storage(self._shape, like), Storage(self._shape, like)  # past, memory
        self._addresses, self._num_positions = self._present_addresses(), 0

    def wait(self) -> None:
        """Wait for the steps that are under way."""
        finish_work(self._device)

    def reset(self, num_slots: int, beam_size: int) -> None:
        """Empty the caches; make room for ``num_slots`` sentences, which are one of the sizes."""
        del beam_size  # that of the settings
        self._present = None
        self._num_slots = num_slots
        if self._present_addresses() != self._addresses:  # weights may have another dtype, too
            self.release()

    def start(self, slots: Sequence[int], encoded: Sequence[Encoded]) -> None:
        """Cache the keys and values of the sentences in ``slots``, and of their start marks.

        The first ones get the memory that their search may need, because all graphs have to be
        recorded again when it grows.
        """
        num_pieces = max(len(each.source[0]) for each in encoded)
        longest = size_for(max(LEAST_ROOM, num_pieces))
        if self._present is None:
            shape = StepShape(self._num_slots, self._past_room(0), longest)
            num_places = min(self._settings.beam_size, PLACES_OF_A_PIECE) * num_pieces
            self._enter(shape, self._past_room(num_places)).clear()
        elif longest > self._present.shape.memory_room:
            self._move(self._present.shape._replace(memory_room=longest))
        # Steps that ran after the last sentence was done may have written NaN.
        self.forget(slots)
        self._write_new(slots, encoded, self._current().past, self._current().memory)

    def forget(self, slots: Sequence[int]) -> None:
        """Set all that is cached for ``slots`` to 0."""
        self._current().past.forget(slots)
        self._current().memory.forget(slots)

    def copy_beams(self, beams: Beams, slots: Sequence[int]) -> None:
        """Copy the hypotheses in ``slots`` from ``beams`` to the device."""
        self._current().beams.copy_from(beams, slots)

    def steps(self, number: int, num_places: int, num_positions: int) -> Readback:
        """Launch ``number`` steps without waiting; return their reports and the ended hypotheses.

        All steps together use at most ``num_places`` places of the past of each slot, and tokens at
        positions below ``num_positions``.
        """
        self._grow_positions(num_positions)
        shape = self._current().shape
        room = self._past_room(num_places)
        if room > shape.past_room or 0 < room <= shape.past_room // 2:
            self._move(shape._replace(past_room=room))
        step, reports = self._current(), Readback()
        for _ in range(number):
            step.repeat()
            reports.add(step.beams.report)
        reports.add(step.beams.ended)
        return reports

    def keep_slots(self, slots: Sequence[int]) -> None:
        """Drop all slots but these, which are one of the sizes; ``slots[i]`` becomes slot i."""
        self._move(self._current().shape._replace(num_slots=len(slots)), slots)

    def free_from(self, first: int) -> None:
        """Free the slots from number ``first`` on."""
        self._current().beams.free_from(first)

    @torch.no_grad()
    def _grow_positions(self, number: int) -> None:
        if number <= self._num_positions:
            return
        self._num_positions = number
        none = torch.zeros(1, dtype=torch.int64, device=self._device)
        self._model.target_embedding.embed(none, none, number)  # grows a table if need be
        present = self._present_addresses()
        if present != self._addresses:
            self._addresses = present
            self._forget_graphs()
            self._move(self._current().shape)

    def _past_room(self, num_places: int) -> int:
        """Return the room for a past of ``num_places``, and for the first step of a beam.

        States of recurrent units take none.
        """
        least = max(LEAST_ROOM, 2 * self._settings.beam_size)
        return 0 if self._is_recurrent else size_for(max(least, num_places))

    def _current(self) -> GraphedStep:
        assert self._present is not None, "a sentence has started"
        return self._present

    def _move(self, shape: StepShape, slots: Sequence[int] | None = None) -> None:
        """Go on with a step of ``shape``, with all slots or with ``slots``."""
        slots = range(self._current().shape.num_slots) if slots is None else slots
        contents = self._current().copied(slots, shape)
        self._enter(shape).put(*contents)

    def _enter(self, shape: StepShape, most_past: int = 0) -> GraphedStep:
        """Return the step of ``shape``, recorded if it is new, which is the current one from now.

        There is memory for a past room of ``most_past``, too. The contents of all its tensors are
        undefined. If recording fails, as with full memory, all memory is released.
        """
        try:
            self._reserve(shape._replace(past_room=max(shape.past_room, most_past)))
            step = self._steps.pop(shape, None)
            if step is None:
                step = self._recorded(shape)
        except BaseException:  # such as full memory
            self.release()
            raise
        self._steps[shape] = step
        if len(self._steps) > MOST_GRAPHS:
            del self._steps[next(iter(self._steps))]
        self._present = step
        return step

    def _reserve(self, shape: StepShape) -> None:
        """Make room for the caches of ``shape``; if they have to grow, forget all steps."""
        needed = shape.num_slots * shape.past_room, shape.num_slots * shape.memory_room
        for storage, num_places in zip(self._storages, needed, strict=True):
            if num_places > storage.num_places:
                self._forget_steps()  # they view the old tensors
                storage.grow(num_places)

    def _recorded(self, shape: StepShape) -> GraphedStep:
        rooms = shape.past_room, shape.memory_room
        past_layers, memory_layers = (
            storage.layers(shape.num_slots, room)
            for storage, room in zip(self._storages, rooms, strict=True)
        )
        beam_size, like = self._settings.beam_size, self._model.output_weight
        by_kernel = kernels_work(self._shape, self._settings, like.dtype, len(like), self._device)
        past: Past | RecurrentPast
        if self._is_recurrent:
            past = RecurrentPast(shape.num_slots, beam_size, self._shape, like)
        else:
            past = Past(past_layers, beam_size, self._shape.window, by_kernel=by_kernel)
        memory = Memory(memory_layers, beam_size, by_kernel=by_kernel)
        beams = DeviceBeams(shape.num_slots, self._settings, self._device, by_kernel=by_kernel)
        step = GraphedStep(shape, beams, past, memory)
        compute = partial(self._compute, beams, past, memory)
        self._recorder.compute(compute)
        step.repeat = self._recorder.recorded(compute)
        return step

    @torch.no_grad()
    def _compute(self, beams: DeviceBeams, past: Past | RecurrentPast, memory: Memory) -> None:
        """Compute a step: all of it is recorded."""
        past.advance(beams.parents, beams.lengths)
        memory.update_mask()
        # ``steps`` has provided for all positions.
        logits = self._decoded(beams.tokens, beams.lengths, 1, past, memory)
        beams.advance(logits, past.num_places())
        past.end_step()
        memory.end_step()

    def _forget_steps(self) -> None:
        self._present = None
        self._forget_graphs()

    def _forget_graphs(self) -> None:
        self._steps.clear()
        self._recorder.forget_graphs()

    def _present_addresses(self) -> list[int]:
        tensors = chain(self._model.parameters(), self._model.buffers())
        return [tensor.data_ptr() for tensor in tensors]
