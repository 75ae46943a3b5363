"""Searches of a few fixed sizes, each with its step as a CUDA graph.

Legend: S slots, K beam, E entries of a slot.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nmt_cli.decoding.graphed.books import DeviceBooks
from nmt_cli.decoding.graphed.caches import DevicePast, DeviceSources
from nmt_cli.decoding.slot_parts import KeysValues, selected

LEAST_ROOM = 32  # entries


def size_for(number: int) -> int:
    """Return the least size that holds ``number``, of 1, 2, 3, 4, 6, 8, 12, 16, 24 and so on."""
    power = 1 << (number - 1).bit_length()
    return power * 3 // 4 if power >= 4 and number <= power * 3 // 4 else power


def size_within(number: int) -> int:
    """Return the largest size that is not above ``number``, which is at least 1."""
    while size_for(number) > number:
        number -= 1
    return number


class FrameShape(NamedTuple):
    """The sizes of a search."""

    num_slots: int
    beam_size: int
    past_room: int  # E of the past
    source_room: int  # E of the sources


class State(NamedTuple):
    """A copy of what a frame holds."""

    rows: list[Tensor]  # all but the caches and the ancestry; the first dimension is S
    is_past: Tensor  # S K E
    past: list[KeysValues]  # of each layer
    sources: list[KeysValues]


class Frame:
    """The tensors of a search of one shape, and the step over them."""

    def __init__(
        self,
        shape: FrameShape,
        books: DeviceBooks,
        past: list[KeysValues],
        sources: list[KeysValues],
    ) -> None:
        """``past`` and ``sources`` are the memory of the caches' layers."""
        self.shape, self.books = shape, books
        self.past, self.sources = (
            DevicePast(past, shape.beam_size),
            DeviceSources(sources, shape.beam_size),
        )
        self._past_layers, self._source_layers = past, sources
        self.repeat_step: Callable[[], None] = lambda: None

    def clear(self) -> None:
        """Free all slots."""
        self.books.clear()
        self.past.is_past.zero_()
        self.sources.lengths.fill_(1)

    def taken(self, slots: Sequence[int], other: FrameShape) -> State:
        """Return a copy of ``slots``, as much of each as a frame of ``other`` shape can hold."""
        at = torch.tensor(slots, device=self.past.is_past.device)
        past_room = min(self.shape.past_room, other.past_room)
        source_room = min(self.shape.source_room, other.source_room)
        return State(
            [each[at] for each in self._rows],
            self.past.is_past[at][:, :, :past_room],
            [selected(layer, at, past_room) for layer in self._past_layers],
            [selected(layer, at, source_room) for layer in self._source_layers],
        )

    def put(self, state: State) -> None:
        """Replace all slots by those of ``state``."""
        for own, rows in zip(self._rows, state.rows, strict=True):
            own.copy_(rows)
        self.past.is_past.zero_()
        self.past.is_past[:, :, : state.is_past.shape[2]] = state.is_past
        for layers, copies in (
            (self._past_layers, state.past),
            (self._source_layers, state.sources),
        ):
            for layer, copy in zip(layers, copies, strict=True):
                layer.keys[..., : copy.room] = copy.keys
                layer.values[:, :, : copy.room] = copy.values

    @property
    def _rows(self) -> list[Tensor]:
        return [*self.books.state, self.sources.lengths]
