"""Caches of fixed shapes and addresses, whose places are found on the device.

Legend: S slots, K beam, H heads, E entries of a slot, D d_k or d_v.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from nmt_cli.decoding.attention_cache import (
    PastEntries,
    Places,
    SourceEntries,
    for_all_heads,
)
from nmt_cli.decoding.slot_parts import HeadShape, KeysValues, Run, SlotParts


class Storage:
    """The memory of a cache, zero at first; caches of several shapes share it, one at a time."""

    def __init__(self, shape: HeadShape, like: Tensor) -> None:
        self._shape, self._like = shape, like
        self._num_places = 0
        self._layers: list[tuple[Tensor, Tensor]] = []

    def grow(self, num_places: int) -> bool:
        """Make room for so many entries of all slots; return whether all tensors are new."""
        if num_places <= self._num_places:
            return False
        self._layers = []  # before the new ones are made
        # Twice as much, because all graphs have to be recorded again.
        num_places, shape = max(num_places, 2 * self._num_places), self._shape
        self._num_places = num_places
        widths = [num_places * shape.num_heads * width for width in (shape.d_k, shape.d_v)]
        self._layers = [
            (self._like.new_zeros(widths[0]), self._like.new_zeros(widths[1]))
            for _ in range(shape.num_layers)
        ]
        return True

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


class DevicePast(PastEntries):
    """``SelfAttentionCache`` with its ancestry on the device, and room for a known number."""

    def __init__(self, layers: list[KeysValues], beam_size: int) -> None:
        num_slots, num_heads, _, room = layers[0].keys.shape
        super().__init__(SlotParts([layers]), num_heads)
        keys = layers[0].keys
        self.is_past = keys.new_zeros((num_slots, beam_size, room), dtype=torch.bool)  # S K E
        self._ends = torch.arange(1, room + 1, device=keys.device)
        self._shown, self._hidden = keys.new_zeros(()), keys.new_full((), -torch.inf)

    def start(self, slots: Sequence[int], entries: Tensor) -> None:
        """Let one entry each be the past of all hypotheses in ``slots``."""
        at = torch.tensor(slots, device=self.is_past.device)
        self.is_past[at] = False
        self.is_past[at, :, 0] = True
        self._write_first(slots, entries)

    def advance(self, parents: Tensor, is_free: Tensor) -> list[Tensor]:
        """Find places for an entry of each hypothesis; return the mask [S*H, K, E] of the one part.

        ``parents`` [S, K] and ``is_free`` [S] are those of ``SelfAttentionCache.advance``. There
        must be K free places in each slot.
        """
        room, beam_size = len(self._ends), parents.shape[1]
        inherited = self.is_past.gather(1, parents[:, :, None].expand(-1, -1, room))
        inherited = inherited & ~is_free[:, None, None]
        is_used = inherited.any(dim=1)  # S E
        places = torch.where(is_used, self._ends + room, self._ends).topk(
            beam_size, dim=1, largest=False
        )
        at = Places.of(places.values - 1)  # in order; beyond the room if there are too few
        self.is_past.copy_(inherited.scatter(2, at.places[:, :, None], True))
        self._places = [at]
        mask = torch.where(self.is_past, self._shown, self._hidden)
        return [for_all_heads(mask, self._num_heads)]

    def num_places(self) -> Tensor:
        """Return how many places [S] are used or in front of a used one."""
        return (self.is_past.any(dim=1) * self._ends).amax(dim=1)


class DeviceSources(SourceEntries):
    """The sources of all slots, with their lengths on the device."""

    def __init__(self, layers: list[KeysValues], beam_size: int) -> None:
        super().__init__(SlotParts([layers]))
        keys = layers[0].keys
        num_slots, self._num_heads, _, room = keys.shape
        self._beam_size = beam_size
        self.lengths = torch.ones(num_slots, dtype=torch.int64, device=keys.device)
        self._places = torch.arange(room, device=keys.device)
        self._shown, self._hidden = keys.new_zeros(()), keys.new_full((), -torch.inf)

    def make_room(self, slots: Sequence[int], lengths: Sequence[int]) -> list[Run]:
        """Return the slots for ``put``; the room suffices already."""
        runs = self._parts.runs(slots)
        self.lengths[runs[0].slots] = torch.tensor(lengths, device=self.lengths.device)
        return runs

    def update_masks(self) -> None:
        """Make the mask from the lengths."""
        mask = torch.where(self._places < self.lengths[:, None], self._shown, self._hidden)  # S E
        self.masks = [for_all_heads(mask[:, None].expand(-1, self._beam_size, -1), self._num_heads)]
