"""Keys and values of all slots in each decoder layer, in torch.

Attention reads all the room of a slot: products of a slice of it would copy that slice first.

Legend: S slots, H heads, E entries of a slot, D d_k or d_v.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor
from torch.nn.functional import pad

from nmt_cli.hardware.device import sent_to

SHRINK_BELOW = 3 / 4  # of the room is needed: then it shrinks, because products read all of it


class HeadShape(NamedTuple):
    """The sizes of the cached layers."""

    num_layers: int
    num_heads: int
    d_k: int
    d_v: int


class KeysValues(NamedTuple):
    """The keys and values that one layer attends to, each laid out as its product reads it."""

    keys: Tensor  # S H D E
    values: Tensor  # S H E D

    @property
    def room(self) -> int:
        """The number of places for entries (E) in each slot."""
        return self.values.shape[2]


class CachedLayers:
    """The keys and values of all layers, with the same slots and the same room."""

    def __init__(self, layers: list[KeysValues]) -> None:
        self.layers = layers

    @classmethod
    def zeros(cls, num_slots: int, room: int, shape: HeadShape, like: Tensor) -> "CachedLayers":
        """Make ``room`` for each slot, with the dtype and device of ``like``."""
        heads = num_slots, shape.num_heads
        keys, values = (*heads, shape.d_k, room), (*heads, room, shape.d_v)
        of_layers = range(shape.num_layers)
        return cls([KeysValues(like.new_zeros(keys), like.new_zeros(values)) for _ in of_layers])

    @property
    def room(self) -> int:
        """The number of places for entries (E) in each slot."""
        return self.layers[0].room

    def at(self, slots: Sequence[int]) -> Tensor:
        """Return ``slots`` on the device, as an index."""
        return sent_to(self.layers[0].keys.device, slots)

    def fit(self, needed: int, wanted: int) -> None:
        """Change the room to ``wanted`` if it is less than ``needed`` or much more."""
        if needed > self.room or wanted < SHRINK_BELOW * self.room:
            self._replace_each(lambda layer: _resized(layer, wanted))

    def keep(self, slots: Sequence[int], room: int) -> None:
        """Drop all slots but these, at least one, and change the room."""
        at = self.at(slots)
        self._replace_each(lambda layer: _resized(selected(layer, at, room), room))

    def set_to_0(self, slots: Sequence[int]) -> None:
        """Set all entries of ``slots`` to 0."""
        at = self.at(slots)
        for layer in self.layers:
            for each in layer:
                each[at] = 0.0

    def _replace_each(self, change: Callable[[KeysValues], KeysValues]) -> None:
        """Replace each layer by ``change`` of it; one at a time is in memory twice."""
        for number, layer in enumerate(self.layers):
            self.layers[number] = change(layer)


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
