"""What incremental decoding keeps of the past and of the sources: keys and values.

Legend: S slots, K beam, H heads, E entries of a slot, D d_k or d_v.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from nmt_cli.hardware.device import sent_to
from nmt_cli.model.attention import MemoryAttention, SelfAttention
from nmt_cli.recipe.model_values import StackShape
from nmt_cli.search.search_size import ROOM_STEP, room_for

SOURCE_STEP = 8  # the room for sources is a multiple of it
SHRINK_BELOW = 3 / 4  # of the room; products read all of it


class KeysValues(NamedTuple):
    """The keys and values that one layer attends to, each laid out as its product reads it."""

    keys: Tensor  # S H D E
    values: Tensor  # S H E D

    @property
    def room(self) -> int:
        """The number of places for entries (E) in each slot."""
        return self.values.shape[2]

    def selected(self, slots: Tensor, room: int) -> "KeysValues":
        """Return a copy of these ``slots`` and at most the first ``room`` places of each."""
        return KeysValues(
            self.keys[..., :room].index_select(0, slots),
            self.values[:, :, :room].index_select(0, slots),
        )

    def with_room(self, room: int) -> "KeysValues":
        """Return these, cut or filled up with zeros to ``room`` places; a copy if that differs."""
        if not (more := room - self.room):
            return self
        return KeysValues(pad(self.keys, (0, more)), pad(self.values, (0, 0, 0, more)))


def empty_layers(shape: StackShape, num_slots: int, room: int, like: Tensor) -> list[KeysValues]:
    """Return layers of zeros, with the dtype and device of ``like``."""
    heads, d_k, d_v = (num_slots, shape.num_heads), shape.key_width, shape.value_width
    return [
        KeysValues(like.new_zeros(*heads, d_k, room), like.new_zeros(*heads, room, d_v))
        for _ in range(shape.num_layers)
    ]


def attend(queries: Tensor, entries: KeysValues, mask: Tensor) -> Tensor:
    """Return softmax(QK^T / sqrt(d_k)) V [S*K, H*D] for ``queries`` [S*K, H*D].

    ``mask`` [S*H, K, E] is added to the scores: 0 = attend, -inf = do not. The hypotheses of a beam
    are the queries of one sentence, so the keys and values they share are read once.
    """
    _, num_heads, d_k, _ = entries.keys.shape
    beam_size = mask.shape[1]
    heads = queries.view(-1, beam_size, num_heads, d_k).transpose(1, 2).flatten(0, 1)  # S*H K D
    scores = torch.baddbmm(mask, heads, entries.keys.flatten(0, 1), alpha=d_k**-0.5)
    attended = torch.bmm(scores.softmax(dim=2), entries.values.flatten(0, 1))
    by_slot = attended.view(-1, num_heads, beam_size, attended.shape[2])
    return by_slot.transpose(1, 2).flatten(2).flatten(0, 1)


def room_of_sources(longest: int) -> int:
    """Return the number of entries to reserve for each source if the longest has ``longest``."""
    return -(-longest // SOURCE_STEP) * SOURCE_STEP


def _additive_mask(is_kept: Tensor, num_heads: int, like: Tensor) -> Tensor:
    """Return the mask [S*H, K, E] of ``attend``: 0 where ``is_kept`` [S, K, E], else -inf.

    It has the dtype of ``like``.
    """
    mask = like.new_zeros(is_kept.shape).masked_fill_(~is_kept, -torch.inf)
    return mask[:, None].expand(-1, num_heads, -1, -1).flatten(0, 1)


class Past:
    """The past of every hypothesis: its entries, and which of them are in whose past.

    Each step writes the K new entries of a slot into places that are free: those whose entry is in
    the past of no hypothesis. Hypotheses of a beam share most of their past, so only a few more
    places are in use than one hypothesis has tokens. When hypotheses change places in the beam,
    the entries stay where they are; only the ancestry is reordered, which marks the entries in the
    past of each hypothesis. If self-attention has a window, entries that it has left are in no
    past. All is on the device, so that a CUDA graph can repeat ``advance``.

    A slot's places depend on its own sentence only, so that its sums have the same order whatever
    other slots hold. Attention reads all the room for entries, where the mask hides what a
    hypothesis does not attend to.
    """

    def __init__(
        self,
        layers: list[KeysValues],
        beam_size: int,
        window: int | None = None,
        *,
        by_kernel: bool = False,
    ) -> None:
        """``layers`` are the memory of the cache; ``by_kernel``, Triton computes attention."""
        self._device, self._window = layers[0].keys.device, window
        self._is_by_kernel = by_kernel
        num_slots, room = len(layers[0].keys), layers[0].room
        is_past = torch.zeros(num_slots, beam_size, room, dtype=torch.bool)
        self._use(layers, is_past, torch.zeros(num_slots, room, dtype=torch.int64))
        self.end_step()

    def _use(self, layers: list[KeysValues], is_past: Tensor, positions: Tensor) -> None:
        num_slots, _, room = is_past.shape
        self.layers, self._num_heads = layers, layers[0].keys.shape[1]
        self.is_past = is_past.to(self._device)  # S K E, the ancestry
        self.positions = positions.to(self._device)  # S E, of the entries
        self._slots = torch.arange(num_slots, device=self._device)[:, None]  # S 1
        self._ends = torch.arange(1, room + 1, device=self._device)

    @property
    def room(self) -> int:
        """The number of places for entries (E) in each slot."""
        return self.layers[0].room

    @property
    def of_slots(self) -> list[Tensor]:
        """What it keeps of each slot beside entries, [S, any]: nothing."""
        return []

    @property
    def of_places(self) -> list[Tensor]:
        """What it keeps of each place, [S, any, E] or [S, E]."""
        return [self.is_past, self.positions]

    def of_first_tokens(self) -> Tensor:
        """Return the entry [S, layers, any] of slots that have one place, for ``start``."""
        of_layers = [torch.cat([each.flatten(1) for each in layer], dim=1) for layer in self.layers]
        return torch.stack(of_layers, dim=1)

    def start(self, slots: Sequence[int], kept: Tensor) -> None:
        """Let one entry each be the past of all hypotheses in ``slots``.

        ``kept`` [B, layers, any] is what ``of_first_tokens`` returned.
        """
        at = sent_to(self._device, slots)
        self.is_past[at] = False
        self.is_past[at, :, 0] = True
        if self._window is not None:
            self.positions[at, 0] = 0
        for layer, of_layer in zip(self.layers, kept.unbind(1), strict=True):
            keys, values = of_layer.tensor_split([self._num_heads * layer.keys.shape[2]], dim=1)
            layer.keys[at, :, :, 0] = keys.unflatten(1, (self._num_heads, -1))
            layer.values[at, :, 0] = values.unflatten(1, (self._num_heads, -1))

    def advance(self, parents: Tensor, positions: Tensor) -> None:
        """Find places for an entry of each hypothesis; there must be K free ones in each slot.

        It inherits the past of its parent, whose place in the beam is in ``parents`` [S, K]. The
        entries are at ``positions`` [S]; hypotheses of slots at 0 have no past. Both are tensors on
        the device.
        """
        room, beam_size = len(self._ends), parents.shape[1]
        inherited = self.is_past.gather(1, parents[:, :, None].expand(-1, -1, room))
        inherited = inherited & (positions != 0)[:, None, None]
        if self._window is not None:
            is_near = self.positions >= positions[:, None] - self._window
            inherited = inherited & is_near[:, None]
        is_used = inherited.any(dim=1)  # S E
        # In order; beyond the room, which is an error of the device, if there are too few.
        free = torch.where(is_used, self._ends + room, self._ends).topk(
            beam_size, dim=1, largest=False
        )
        self._places = free.values - 1
        self.is_past.copy_(inherited.scatter(2, self._places[:, :, None], True))
        if self._window is not None:
            self.positions.scatter_(1, self._places, positions[:, None].expand(-1, beam_size))
        if self._is_by_kernel:
            self._used = self._num_used()
        else:
            self._mask = _additive_mask(self.is_past, self._num_heads, self.layers[0].keys)

    def attend(self, layer: int, sublayer: nn.Module, rows: Tensor) -> Tensor:
        """Keep the keys and values of the newest tokens; return their attention to the past."""
        assert isinstance(sublayer, SelfAttention)
        return sublayer.output(self.attended(layer, *sublayer.project(rows)))

    def attended(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Return what the heads attend to [S*K, H*D], by queries, new keys and new values."""
        entries, shape = self.layers[layer], (*self._places.shape, self._num_heads, -1)  # S K H D
        if self._is_by_kernel:
            from nmt_cli.model.triton_kernels.beam_attention import attend_to_past

            rows = queries, keys, values
            return attend_to_past(rows, *entries, self.is_past, self._places, self._used)
        entries.keys[self._slots, :, :, self._places] = keys.view(shape)
        entries.values[self._slots, :, self._places] = values.view(shape)
        return attend(queries, entries, self._mask)

    def end_step(self) -> None:
        """Keep no tensor of the step."""
        self._places = self._mask = self._used = self._ends[:0]

    def num_places(self) -> Tensor:
        """Return the highest used place + 1 [S]."""
        return self._used if len(self._used) else self._num_used()

    def _num_used(self) -> Tensor:
        return (self.is_past.any(dim=1) * self._ends).amax(dim=1)

    def forget(self, slots: Sequence[int]) -> None:
        """Set all entries of ``slots`` to 0: the mask hides old ones, but not if they are NaN."""
        _set_to_0(self.layers, sent_to(self._device, slots))


class GrowingPast(Past):
    """A past that has the room which its sentences need."""

    def __init__(self, num_slots: int, beam_size: int, shape: StackShape, like: Tensor) -> None:
        """Make an empty past with the dtype and device of ``like``."""
        layers = empty_layers(shape, num_slots, ROOM_STEP, like)
        super().__init__(layers, beam_size, shape.window)
        self._most_places = 1  # that a slot may use; the number itself is on the device

    def advance(self, parents: Tensor, positions: Tensor) -> None:
        """Find places for an entry of each hypothesis, in as much room as they need."""
        self._most_places += parents.shape[1]
        if self._most_places > self.room:
            self._most_places = int(self.num_places().max()) + parents.shape[1]
            wanted = room_for(self._most_places)
            if wanted > self.room or wanted < SHRINK_BELOW * self.room:
                self._resize(wanted)
        super().advance(parents, positions)

    def keep_slots(self, slots: Sequence[int]) -> None:
        """Drop all slots but these, at least one."""
        at = sent_to(self._device, slots)
        self.is_past, self.positions = self.is_past[at], self.positions[at]
        self._most_places = int(self.num_places().max())
        self._resize(room_for(self._most_places + self.is_past.shape[1]), at)  # by the next step

    def _resize(self, room: int, slots: Tensor | None = None) -> None:
        more = 0, room - self.is_past.shape[2]
        layers = _resized(self.layers, room, slots)
        self._use(layers, pad(self.is_past, more), pad(self.positions, more))


class Memory:
    """The keys and values of each slot's source sentence, shared by its beam."""

    def __init__(
        self, layers: list[KeysValues], beam_size: int, *, by_kernel: bool = False
    ) -> None:
        """``layers`` are the memory of the cache; ``by_kernel``, Triton computes attention."""
        keys, self._is_by_kernel = layers[0].keys, by_kernel
        self.layers, self._beam_size, self._device = layers, beam_size, keys.device
        self.lengths = torch.ones(len(keys), dtype=torch.int64, device=keys.device)
        self.end_step()

    def make_room(self, slots: Sequence[int], lengths: Sequence[int]) -> Tensor:
        """Make room for sources of these ``lengths`` in ``slots``; return the slots for ``put``."""
        at = sent_to(self._device, slots)
        self.lengths[at] = sent_to(self._device, lengths)
        return at

    def put(self, layer: int, slots: Tensor, new: KeysValues) -> None:
        """Write the keys [B, H, D, E] and values [B, H, E, D] of the sources in ``slots``."""
        entries = self.layers[layer]
        entries.keys[slots, :, :, : new.room] = new.keys
        entries.values[slots, :, : new.room] = new.values

    def update_mask(self) -> None:
        """Make the mask from the lengths."""
        if self._is_by_kernel:
            return
        keys = self.layers[0].keys
        is_own = torch.arange(keys.shape[3], device=keys.device) < self.lengths[:, None]  # S E
        is_own = is_own[:, None].expand(-1, self._beam_size, -1)
        self._mask = _additive_mask(is_own, keys.shape[1], keys)

    def attend(self, layer: int, attention: MemoryAttention, rows: Tensor) -> Tensor:
        """Return attention [S*K, any] of ``rows`` to the sources, in one layer."""
        return attention.output(self.attended(layer, attention.queries(rows)))

    def attended(self, layer: int, queries: Tensor) -> Tensor:
        """Return what the heads attend to [S*K, H*D]."""
        if self._is_by_kernel:
            from nmt_cli.model.triton_kernels.beam_attention import attend_to_sources

            return attend_to_sources(queries, *self.layers[layer], self.lengths)
        return attend(queries, self.layers[layer], self._mask)

    def end_step(self) -> None:
        """Keep no tensor of the step."""
        self._mask = self.lengths[:0]

    def forget(self, slots: Sequence[int]) -> None:
        """Set all entries of ``slots`` to 0, also those that the next source leaves as they are."""
        _set_to_0(self.layers, sent_to(self._device, slots))


class GrowingMemory(Memory):
    """The sources of all slots, in the room that they need."""

    def __init__(self, num_slots: int, beam_size: int, shape: StackShape, like: Tensor) -> None:
        """Make an empty cache with the dtype and device of ``like``."""
        super().__init__(empty_layers(shape, num_slots, 1, like), beam_size)
        self._of_slots = [1] * num_slots  # the lengths, without waiting for a device

    def make_room(self, slots: Sequence[int], lengths: Sequence[int]) -> Tensor:
        """Make room for sources of these ``lengths`` in ``slots``; return the slots for ``put``."""
        for slot, length in zip(slots, lengths, strict=True):
            self._of_slots[slot] = length
        room, needed = self.layers[0].room, room_of_sources(max(self._of_slots))
        if needed > room or needed < SHRINK_BELOW * room:
            self.layers = _resized(self.layers, needed)
        at = super().make_room(slots, lengths)
        self.update_mask()
        return at

    def keep_slots(self, slots: Sequence[int]) -> None:
        """Drop all other slots."""
        at = sent_to(self._device, slots)
        self._of_slots = [self._of_slots[slot] for slot in slots]
        self.layers = _resized(self.layers, room_of_sources(max(self._of_slots)), at)
        self.lengths = self.lengths[at]
        self.update_mask()


def _set_to_0(layers: Sequence[KeysValues], slots: Tensor) -> None:
    for layer in layers:
        for each in layer:
            each[slots] = 0.0


def _resized(layers: list[KeysValues], room: int, slots: Tensor | None = None) -> list[KeysValues]:
    """Replace each of ``layers`` by a copy of ``slots`` with ``room`` places; all slots if None.

    One at a time is in memory twice.
    """
    for number, layer in enumerate(layers):
        kept = layer if slots is None else layer.selected(slots, room)
        layers[number] = kept.with_room(room)
    return layers
