"""Caches of fixed shapes and addresses, whose places are found on the device.

Legend: S slots, K beam, H heads, E entries of a slot, D d_k or d_v.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from nmt_cli.hardware.device import sent_to
from nmt_cli.search.attention_cache import MemoryCache, PastCache, Places, additive_mask
from nmt_cli.search.cached_layers import CachedLayers, HeadShape, KeysValues


class Storage:
    """The memory of a cache, zero at first; caches of several shapes share it, one at a time."""

    def __init__(self, shape: HeadShape, like: Tensor) -> None:
        self._shape, self._like = shape, like
        self._num_places = 0
        self._layers: list[tuple[Tensor, Tensor]] = []

    def holds(self, num_places: int) -> bool:
        """Return whether there is room for so many entries of all slots."""
        return num_places <= self._num_places

    def grow(self, num_places: int) -> None:
        """Make new tensors with room for so many entries, or more if that saves later growth.

        If a view of the old ones is left, both are in memory.
        """
        self._layers, shape = [], self._shape
        # Twice as much, because all graphs have to be recorded again.
        self._num_places = num_places = max(num_places, 2 * self._num_places)
        widths = [num_places * shape.num_heads * width for width in (shape.d_k, shape.d_v)]
        self._layers = [
            (self._like.new_zeros(widths[0]), self._like.new_zeros(widths[1]))
            for _ in range(shape.num_layers)
        ]

    def layers(self, num_slots: int, room: int) -> list[KeysValues]:
        """Return the memory as the keys and values of each layer."""
        heads, (_, _, d_k, d_v) = (num_slots, self._shape.num_heads), self._shape
        return [
            KeysValues(
                keys[: num_slots * self._shape.num_heads * d_k * room].view(*heads, d_k, room),
                values[: num_slots * self._shape.num_heads * room * d_v].view(*heads, room, d_v),
            )
            for keys, values in self._layers
        ]


class FixedPast(PastCache):
    """``GrowingPast`` with its ancestry on the device and a fixed number of places.

    So a CUDA graph can repeat ``advance``.
    """

    def __init__(self, layers: list[KeysValues], beam_size: int) -> None:
        """``layers`` are the memory of the cache."""
        keys = layers[0].keys
        num_slots, num_heads, _, room = keys.shape
        super().__init__(CachedLayers(layers), num_heads)
        self._like = keys
        self.is_past = keys.new_zeros((num_slots, beam_size, room), dtype=torch.bool)  # S K E
        self._ends = torch.arange(1, room + 1, device=keys.device)

    def forget_ancestry(self, slots: Sequence[int]) -> None:
        """Let the first place be the only past of all hypotheses in ``slots``."""
        at = sent_to(self.is_past.device, slots)
        self.is_past[at] = False
        self.is_past[at, :, 0] = True

    def advance(self, parents: Tensor, is_free: Tensor) -> None:
        """Find places for an entry of each hypothesis; there must be K free ones in each slot."""
        room, beam_size = len(self._ends), parents.shape[1]
        inherited = self.is_past.gather(1, parents[:, :, None].expand(-1, -1, room))
        inherited = inherited & ~is_free[:, None, None]
        is_used = inherited.any(dim=1)  # S E
        # In order; beyond the room, which is an error of the device, if there are too few.
        free = torch.where(is_used, self._ends + room, self._ends).topk(
            beam_size, dim=1, largest=False
        )
        at = Places.of(free.values - 1)
        self.is_past.copy_(inherited.scatter(2, at.places[:, :, None], True))
        self._places = at
        self._mask = additive_mask(self.is_past, self._num_heads, self._like)

    def end_step(self) -> None:
        """Keep no tensor of the step."""
        self._places = self._mask = None

    def num_places(self) -> Tensor:
        """Return the highest used place + 1 [S]."""
        return (self.is_past.any(dim=1) * self._ends).amax(dim=1)


class FixedMemory(MemoryCache):
    """The sources of all slots in a fixed room, with their lengths on the device."""

    def __init__(self, layers: list[KeysValues], beam_size: int) -> None:
        """``layers`` are the memory of the cache."""
        super().__init__(CachedLayers(layers))
        self._like = layers[0].keys
        num_slots, self._num_heads, _, room = self._like.shape
        self._beam_size = beam_size
        self.lengths = torch.ones(num_slots, dtype=torch.int64, device=self._like.device)
        self._places = torch.arange(room, device=self._like.device)

    def make_room(self, slots: Sequence[int], lengths: Sequence[int]) -> None:
        """Keep the ``lengths``; the room suffices already."""
        self.lengths[self.cached.at(slots)] = sent_to(self.lengths.device, lengths)

    def update_masks(self) -> None:
        """Make the mask from the lengths."""
        is_own = (self._places < self.lengths[:, None])[:, None].expand(-1, self._beam_size, -1)
        self.mask = additive_mask(is_own, self._num_heads, self._like)

    def end_step(self) -> None:
        """Keep no tensor of the step."""
        self.mask = None
