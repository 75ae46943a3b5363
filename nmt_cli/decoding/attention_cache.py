"""Keys and values that incremental decoding keeps, and attention to them.

Legend: S slots, K beam, H heads, E entries of a slot, D d_k or d_v.
"""

import sys
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

# The cache grows by 16 entries, or by an eighth if that is more.
ROOM_STEP, ROOM_GROWTH = 16, 1 / 8
SHRINK_BELOW = 3 / 4  # a cache shrinks when what it needs is below this share of its room
# Slots that are stored together on a CPU, where 16 and 48 are as fast; all are on a GPU, which does
# few large products faster.
SLOTS_OF_PART = {"cpu": 32}


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


class _Places(NamedTuple):
    """Where the entries of a step are written."""

    slots: Tensor  # S 1, counted from the first of the part
    places: Tensor  # S K

    @classmethod
    def of(cls, places: Tensor) -> Self:
        """Return ``places`` [S, K] with the slot of each row."""
        return cls(torch.arange(len(places), device=places.device)[:, None], places)


def attend(queries: Tensor, cached: KeysValues, mask: Tensor) -> Tensor:
    """Return softmax(QK^T / sqrt(d_k)) V [S*K, H*D] for ``queries`` [S*K, H*D].

    ``mask`` [S*H, K, E] is added to the scores: 0 = attend, -inf = do not. The hypotheses of a beam
    are the queries of one sentence, so the keys and values they share are read once. Two products
    and a softmax take two thirds of the time of ``scaled_dot_product_attention``, which is slow
    with masks.
    """
    num_slots, num_heads, d_k, _ = cached.keys.shape
    heads = queries.view(num_slots, -1, num_heads, d_k).transpose(1, 2).flatten(0, 1)  # S*H K D
    keys, values = cached.keys.flatten(0, 1), cached.values.flatten(0, 1)
    scores = torch.baddbmm(mask, heads, keys, alpha=d_k**-0.5)
    attended = torch.bmm(scores.softmax(dim=2), values)  # S*H K D
    by_slot = attended.view(num_slots, num_heads, -1, values.shape[2])
    return by_slot.transpose(1, 2).flatten(2).flatten(0, 1)


def attend_in_parts(
    queries: Tensor, parts: Sequence[KeysValues], masks: Sequence[Tensor]
) -> Tensor:
    """Return ``attend`` [S*K, H*D] of all slots, which are stored in ``parts``."""
    if len(parts) == 1:
        return attend(queries, parts[0], masks[0])
    rows = [len(part.keys) * mask.shape[1] for part, mask in zip(parts, masks, strict=True)]
    of_parts = zip(queries.split(rows), parts, masks, strict=True)
    return torch.cat([attend(*each) for each in of_parts])


def split_heads(rows: Tensor, num_slots: int, num_heads: int) -> Tensor:
    """Return [S*E, H*D] as [S, H, E, D]."""
    return rows.view(num_slots, -1, num_heads, rows.shape[1] // num_heads).transpose(1, 2)


def mask_of_sources(
    lengths: Sequence[int], room: int, beam_size: int, num_heads: int, like: Tensor
) -> Tensor:
    """Return the mask [S*H, K, E] of sources of these ``lengths`` where E is ``room``.

    It has the dtype and device of ``like``.
    """
    ends = torch.tensor(lengths, device=like.device)[:, None]
    is_behind = torch.arange(room, device=like.device) >= ends  # S E
    mask = like.new_zeros(is_behind.shape).masked_fill_(is_behind, -torch.inf)
    return _for_all_heads(mask[:, None].expand(-1, beam_size, -1), num_heads)


class SelfAttentionCache:
    """The keys and values of the past of every hypothesis.

    Each step writes the K new entries of a slot into places that are free: those whose entry is in
    the past of no hypothesis. Hypotheses of a beam share most of their past, so few more places
    than their length are in use. When hypotheses change places in the beam, only the ancestry is
    reordered, which marks the entries in the past of each hypothesis, not the entries.

    A slot's places depend on its own sentence only, so that its sums have the same order whatever
    other slots hold. Attention reads all the room for entries, where the mask hides what a
    hypothesis does not attend to: products of a part of it would copy that part first. So the slots
    are stored in parts, each with the room that one of its slots needs: a sentence whose output
    becomes long makes room for the slots of its part only.
    """

    def __init__(self, num_slots: int, beam_size: int, shape: HeadShape, like: Tensor) -> None:
        """Make an empty cache with the dtype and device of ``like``."""
        self._slots_of_part = SLOTS_OF_PART.get(like.device.type, sys.maxsize)
        self._parts = [
            _empty_layers(part.stop - part.start, ROOM_STEP, shape, like)
            for part in self._slices(num_slots)
        ]
        self._num_layers, self._num_heads = shape.num_layers, shape.num_heads
        # S K E, the ancestry; on the CPU, so that finding places does not wait for a GPU.
        self._is_past: NDArray[np.bool_] = np.zeros((num_slots, beam_size, ROOM_STEP), np.bool_)
        self._shown, self._hidden = like.new_zeros(()), like.new_full((), -torch.inf)

    @property
    def rooms(self) -> list[int]:
        """The number of places for entries (E) in each slot of each part."""
        return [layers[0].room for layers in self._parts]

    def start(self, slots: Sequence[int], entries: Tensor) -> None:
        """Let one entry each be the past of all hypotheses in ``slots``.

        ``entries`` [B, layers, H*(d_k + d_v)] are the keys and values.
        """
        self._is_past[slots] = False
        self._is_past[slots, :, 0] = True
        begin = 0
        for number, own in self._runs(slots):
            rows = entries[begin : begin + len(own)]  # of this part
            begin += len(own)
            for layer, of_layer in zip(self._parts[number], rows.unbind(1), strict=True):
                _, num_heads, d_k, _ = layer.keys.shape
                keys, values = of_layer.tensor_split([num_heads * d_k], dim=1)
                layer.keys[own, :, :, 0] = keys.unflatten(1, (num_heads, -1))
                layer.values[own, :, 0] = values.unflatten(1, (num_heads, -1))

    def advance(self, parents: Tensor, is_free: Tensor) -> list[Tensor]:
        """Find places for an entry of each hypothesis; return each part's mask [S*H, K, E].

        Each hypothesis inherits the past of its parent, whose place in the beam is in ``parents``
        [S, K]. Hypotheses of slots with ``is_free`` [S] have no past. Both are on the CPU.
        """
        num_slots, beam_size = parents.shape
        slots = np.arange(num_slots)[:, None]
        self._is_past = self._is_past[slots, parents.numpy()]
        self._is_past[is_free.numpy()] = False
        is_used = np.any(self._is_past, axis=1)  # S E
        places = _first_free(is_used, beam_size)
        needed, used = places.max(axis=1) + 1, _behind_last(is_used)
        parts = self._slices(num_slots)
        for layers, part in zip(self._parts, parts, strict=True):
            _fit_room(layers, int(needed[part].max()), int(used[part].max()))
        self._is_past = _with_room(self._is_past, max(self.rooms))
        self._is_past[slots, np.arange(beam_size), places] = True
        device = self._hidden.device
        is_past, of_slots = torch.from_numpy(self._is_past).to(device), torch.from_numpy(places)
        self._places = [_Places.of(of_slots[part].to(device)) for part in parts]
        return [
            _for_all_heads(
                torch.where(is_past[part, :, :room], self._shown, self._hidden), self._num_heads
            )
            for part, room in zip(parts, self.rooms, strict=True)
        ]

    def append(self, layer: int, keys: Tensor, values: Tensor) -> list[KeysValues]:
        """Write the new entries [S*K, H*D] of ``layer``; return all entries of each part."""
        rows = [at.places.numel() for at in self._places]
        parts = [layers[layer] for layers in self._parts]
        for part, (slots, places), new_keys, new_values in zip(
            parts, self._places, keys.split(rows), values.split(rows), strict=True
        ):
            shape = (*places.shape, self._num_heads, -1)  # S K H D
            part.keys[slots, :, :, places] = new_keys.view(shape)
            part.values[slots, :, places] = new_values.view(shape)
        return parts

    def keep_slots(self, slots: Sequence[int]) -> None:
        """Drop all slots but these, at least one."""
        self._is_past = self._is_past[list(slots)]
        behind = _behind_last(np.any(self._is_past, axis=1))
        parts = self._slices(len(slots))
        needed = behind + self._is_past.shape[1]  # by the next step
        rooms = [_room_for(int(needed[part].max())) for part in parts]
        runs = [self._runs(slots[part]) for part in parts]
        old, self._parts = self._parts, [[] for _ in parts]
        for _ in range(self._num_layers):  # one layer at a time is in memory twice
            old_parts = [layers.pop(0) for layers in old]
            for layers, of_part, room in zip(self._parts, runs, rooms, strict=True):
                layers.append(_gathered(old_parts, of_part, room))

    def forget(self, slots: Sequence[int]) -> None:
        """Set all entries of ``slots`` to 0: the mask hides old ones, but not if they are NaN."""
        for slot in slots:
            part, own = divmod(slot, self._slots_of_part)
            _set_to_0(self._parts[part], [own])

    def _runs(self, slots: Sequence[int]) -> list[tuple[int, Tensor]]:
        """Return the number of a part and places in it for each run of ``slots`` of one part."""
        size, device = self._slots_of_part, self._hidden.device
        return [
            (number, torch.tensor([slot % size for slot in run], device=device))
            for number, run in groupby(slots, key=lambda slot: slot // size)
        ]

    def _slices(self, num_slots: int) -> list[slice]:
        """Return the slots of each part; there is one, even if it is empty."""
        size = self._slots_of_part
        return [slice(i, min(i + size, num_slots)) for i in range(0, max(1, num_slots), size)]


class MemoryCache:
    """The keys and values of each slot's source sentence, shared by its beam."""

    def __init__(self, num_slots: int, beam_size: int, shape: HeadShape, like: Tensor) -> None:
        """Make an empty cache with the dtype and device of ``like``."""
        self._layers = _empty_layers(num_slots, 1, shape, like)
        self._num_heads = shape.num_heads
        self._beam_size = beam_size
        self._lengths = [1] * num_slots
        self.mask = like  # S*H K E, where E is the length of the longest source

    def make_room(self, slots: Sequence[int], lengths: Sequence[int]) -> None:
        """Make room for sources of these ``lengths`` in ``slots``, resizing the cache if needed."""
        for slot, length in zip(slots, lengths, strict=True):
            self._lengths[slot] = length
        longest, width = max(self._lengths), self._layers[0].room
        if longest > width or longest < SHRINK_BELOW * width:
            _replace_each(self._layers, lambda layer: _resized(layer, longest))
        self._update_mask()

    def put(self, layer: int, slots: Tensor, new: KeysValues) -> None:
        """Write the keys [B, H, D, E] and values [B, H, E, D] of the sources in ``slots`` [B]."""
        entries, length = self._layers[layer], new.values.shape[2]
        entries.keys[slots, :, :, :length] = new.keys
        entries.values[slots, :, :length] = new.values

    def layer(self, number: int) -> KeysValues:
        """Return the entries of one layer."""
        return self._layers[number]

    def keep_slots(self, slots: Sequence[int]) -> None:
        """Drop all other slots."""
        self._lengths = [self._lengths[slot] for slot in slots]
        kept = torch.tensor(slots, device=self.mask.device)
        _replace_each(self._layers, lambda layer: _selected(layer, kept, layer.room))
        self._update_mask()

    def forget(self, slots: Sequence[int]) -> None:
        """Set all entries of ``slots`` to 0, also those that the next source leaves as they are."""
        _set_to_0(self._layers, slots)

    def _update_mask(self) -> None:
        first = self._layers[0]
        self.mask = mask_of_sources(
            self._lengths, first.room, self._beam_size, self._num_heads, first.values
        )


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


def _selected(layer: KeysValues, slots: Tensor, room: int) -> KeysValues:
    """Return these ``slots`` and at most the first ``room`` places of each."""
    return KeysValues(
        layer.keys[..., :room].index_select(0, slots),
        layer.values[:, :, :room].index_select(0, slots),
    )


def _gathered(
    parts: Sequence[KeysValues], runs: Sequence[tuple[int, Tensor]], room: int
) -> KeysValues:
    """Return a part with the slots of all ``runs``: the number of one of ``parts``, and places."""
    pieces = [_resized(_selected(parts[number], own, room), room) for number, own in runs]
    if len(pieces) == 1:
        return pieces[0]
    return KeysValues(*map(torch.cat, zip(*pieces, strict=True)))


def _set_to_0(layers: Sequence[KeysValues], slots: Sequence[int]) -> None:
    for layer in layers:
        for part in layer:
            part[list(slots)] = 0.0


def _first_free(is_used: NDArray[np.bool_], number: int) -> NDArray[np.int64]:
    """Return the first free places [S, number] of ``is_used`` [S, E]; some may be behind it."""
    wider = np.pad(is_used, ((0, 0), (0, number)))
    return np.argsort(wider, axis=1, kind="stable")[:, :number]


def _with_room(is_past: NDArray[np.bool_], room: int) -> NDArray[np.bool_]:
    """Return ``is_past`` [S, K, E] with E = ``room``, cut or filled up with False."""
    if (more := room - is_past.shape[2]) <= 0:
        return is_past[:, :, :room]
    return np.pad(is_past, ((0, 0), (0, 0), (0, more)))


def _behind_last(is_used: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the place behind the last one [S] of ``is_used`` [S, E]."""
    places = np.arange(1, is_used.shape[1] + 1)
    return np.max(is_used * places, axis=1, initial=0)


def _room_for(num_entries: int) -> int:
    """Return room for ``num_entries`` and for some of the next steps."""
    steps = max(1, round(num_entries * ROOM_GROWTH / ROOM_STEP))
    return -(-num_entries // ROOM_STEP) * ROOM_STEP + (steps - 1) * ROOM_STEP


def _fit_room(layers: list[KeysValues], needed: int, used: int) -> None:
    """Make room for ``needed`` places; give up what is much more than those ``used``."""
    old, room = layers[0].room, _room_for(max(needed, used))
    if needed > old or room < SHRINK_BELOW * old:
        _replace_each(layers, lambda layer: _resized(layer, room))


def _resized(layer: KeysValues, room: int) -> KeysValues:
    """Return ``layer`` with E = ``room``, cut or filled up with zeros; a copy if that differs."""
    if not (more := room - layer.room):
        return layer
    return KeysValues(pad(layer.keys, (0, more)), pad(layer.values, (0, 0, 0, more)))


def _for_all_heads(mask: Tensor, num_heads: int) -> Tensor:
    """Return ``mask`` [S, K, E] repeated for each head [S*H, K, E]."""
    return mask[:, None].expand(-1, num_heads, -1, -1).flatten(0, 1)
