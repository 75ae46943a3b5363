"""Keys and values of slots, stored in parts of some slots each.

Attention reads all the room of a slot: products of a slice of it would copy that slice first. A
part has the room that one of its slots needs, so a long sentence makes room in its own part only.

Legend: S slots, H heads, E entries of a slot, D d_k or d_v.
"""

import sys
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from nmt_cli.hardware.device import sent_to

# Slots that are stored together on a CPU, where 16 and 48 are as fast; all are on a GPU, which does
# few large products faster.
SLOTS_OF_PART = {"cpu": 32}
# A part shrinks when it needs a smaller share of its room: products read all of it.
SHRINK_BELOW = 3 / 4


class HeadShape(NamedTuple):
    """The sizes of the cached layers."""

    num_layers: int
    num_heads: int
    d_k: int
    d_v: int


class KeysValues(NamedTuple):
    """The keys and values that one layer attends to, each laid out as its product reads it.

    Small fp32 products by a transposed matrix take oneDNN twice to four times as long.
    """

    keys: Tensor  # S H D E
    values: Tensor  # S H E D

    @property
    def room(self) -> int:
        """The number of places for entries (E) in each slot."""
        return self.values.shape[2]


class Run(NamedTuple):
    """Slots in a row, of those that were asked for, that are in one part."""

    part: int
    slots: Tensor  # counted from the first of the part
    asked: slice  # where they are among all that were asked for


class SlotParts:
    """The keys and values of all slots and layers."""

    def __init__(self, parts: Sequence[list[KeysValues]], size: int = sys.maxsize) -> None:
        """Each of ``parts`` has all layers of ``size`` slots, and the last may have fewer."""
        self._parts, self._size = list(parts), size
        self._num_layers, self._device = len(parts[0]), parts[0][0].keys.device

    @classmethod
    def zeros(cls, num_slots: int, room: int, shape: HeadShape, like: Tensor) -> "SlotParts":
        """Make ``room`` for each slot, with the dtype and device of ``like``."""
        size = SLOTS_OF_PART.get(like.device.type, sys.maxsize)
        parts = _slices(num_slots, size)
        return cls(
            [_empty_layers(part.stop - part.start, room, shape, like) for part in parts], size
        )

    @property
    def rooms(self) -> list[int]:
        """The number of places for entries (E) in each slot of each part."""
        return [layers[0].room for layers in self._parts]

    def slices(self, num_slots: int) -> list[slice]:
        """Return the slots of each part; there is one, even if it is empty."""
        return _slices(num_slots, self._size)

    def runs(self, slots: Sequence[int]) -> list[Run]:
        """Return ``slots`` by part."""
        runs, begin = [], 0
        for part, run in groupby(slots, key=lambda slot: slot // self._size):
            own = [slot % self._size for slot in run]
            asked = slice(begin, begin + len(own))
            runs.append(Run(part, sent_to(self._device, own), asked))
            begin = asked.stop
        return runs

    def layer(self, number: int) -> list[KeysValues]:
        """Return each part of one layer."""
        return [layers[number] for layers in self._parts]

    def fit(self, part: int, needed: int, wanted: int) -> None:
        """Give a part the room ``wanted`` if it has less than ``needed`` or much more."""
        layers = self._parts[part]
        old = layers[0].room
        if needed > old or wanted < SHRINK_BELOW * old:
            _replace_each(layers, lambda layer: _resized(layer, wanted))

    def keep(self, slots: Sequence[int], rooms: Sequence[int]) -> None:
        """Drop all slots but these, at least one; the new parts get ``rooms``."""
        runs = [self.runs(slots[part]) for part in self.slices(len(slots))]
        old, self._parts = self._parts, [[] for _ in runs]
        for _ in range(self._num_layers):  # one layer at a time is in memory twice
            old_parts = [layers.pop(0) for layers in old]
            for layers, of_part, room in zip(self._parts, runs, rooms, strict=True):
                layers.append(_gathered(old_parts, of_part, room))

    def set_to_0(self, slots: Sequence[int]) -> None:
        """Set all entries of ``slots`` to 0."""
        for run in self.runs(slots):
            for layer in self._parts[run.part]:
                for each in layer:
                    each[run.slots] = 0.0


def _slices(num_slots: int, size: int) -> list[slice]:
    return [slice(i, min(i + size, num_slots)) for i in range(0, max(1, num_slots), size)]


def _empty_layers(num_slots: int, room: int, shape: HeadShape, like: Tensor) -> list[KeysValues]:
    heads = num_slots, shape.num_heads
    return [
        KeysValues(like.new_zeros(*heads, shape.d_k, room), like.new_zeros(*heads, room, shape.d_v))
        for _ in range(shape.num_layers)
    ]


def _replace_each(layers: list[KeysValues], change: Callable[[KeysValues], KeysValues]) -> None:
    """Replace each layer by ``change`` of it; one at a time is in memory twice."""
    for number, layer in enumerate(layers):
        layers[number] = change(layer)


def _gathered(parts: Sequence[KeysValues], runs: Sequence[Run], room: int) -> KeysValues:
    """Return a part with the slots of all ``runs``."""
    found = [_resized(selected(parts[run.part], run.slots, room), room) for run in runs]
    if len(found) == 1:
        return found[0]
    return KeysValues(*map(torch.cat, zip(*found, strict=True)))


def selected(layer: KeysValues, slots: Tensor, room: int) -> KeysValues:
    """Return a copy of these ``slots`` and at most the first ``room`` places of each."""
    return KeysValues(
        layer.keys[..., :room].index_select(0, slots),
        layer.values[:, :, :room].index_select(0, slots),
    )


def _resized(layer: KeysValues, room: int) -> KeysValues:
    """Return ``layer`` with E = ``room``, cut or filled up with zeros; a copy if that differs."""
    if not (more := room - layer.room):
        return layer
    return KeysValues(pad(layer.keys, (0, more)), pad(layer.values, (0, 0, 0, more)))
