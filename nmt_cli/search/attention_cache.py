"""What incremental decoding keeps of the past and of the sources: keys and values.

Legend: S slots, K beam, H heads, E entries of a slot, D d_k or d_v.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nmt_cli.hardware.device import sent_to
from nmt_cli.model.attention import MemoryAttention, SelfAttention
from nmt_cli.search.cached_layers import CachedLayers, HeadShape, KeysValues

# The room for the past grows by 16 entries, or by an eighth if that is more.
ROOM_STEP, ROOM_GROWTH = 16, 1 / 8
SOURCE_STEP = 8  # GPUs multiply bf16 fastest if the room for sources is a multiple of this


class Places(NamedTuple):
    """Where the entries of a step are written."""

    slots: Tensor  # S 1
    places: Tensor  # S K

    @classmethod
    def of(cls, places: Tensor) -> "Places":
        """Return ``places`` [S, K] with the slot of each row."""
        return cls(torch.arange(len(places), device=places.device)[:, None], places)


def attend(queries: Tensor, entries: KeysValues, mask: Tensor) -> Tensor:
    """Return softmax(QK^T / sqrt(d_k)) V [S*K, H*D] for ``queries`` [S*K, H*D].

    ``mask`` [S*H, K, E] is added to the scores: 0 = attend, -inf = do not. The hypotheses of a beam
    are the queries of one sentence, so the keys and values they share are read once. Two products
    and a softmax take two thirds of the time of ``scaled_dot_product_attention``, which is slow
    with masks.
    """
    _, num_heads, d_k, _ = entries.keys.shape
    beam_size, d_v = mask.shape[1], entries.values.shape[3]
    heads = queries.view(-1, beam_size, num_heads, d_k).transpose(1, 2).flatten(0, 1)  # S*H K D
    scores = torch.baddbmm(mask, heads, entries.keys.flatten(0, 1), alpha=d_k**-0.5)
    attended = torch.bmm(scores.softmax(dim=2), entries.values.flatten(0, 1))
    by_slot = attended.view(-1, num_heads, beam_size, d_v)
    return by_slot.transpose(1, 2).flatten(2).flatten(0, 1)


def split_heads(rows: Tensor, num_slots: int, num_heads: int) -> Tensor:
    """Return [S*E, H*D] as [S, H, E, D]."""
    return rows.view(num_slots, -1, num_heads, rows.shape[1] // num_heads).transpose(1, 2)


def room_of_sources(longest: int) -> int:
    """Return the number of entries to reserve for each source if the longest has ``longest``."""
    return -(-longest // SOURCE_STEP) * SOURCE_STEP


def mask_of_sources(
    lengths: Sequence[int], room: int, beam_size: int, num_heads: int, like: Tensor
) -> Tensor:
    """Return the mask [S*H, K, E] of sources of these ``lengths`` where E is ``room``.

    It has the dtype and device of ``like``.
    """
    ends = sent_to(like.device, lengths)[:, None]
    is_own = torch.arange(room, device=like.device) < ends  # S E
    return additive_mask(is_own[:, None].expand(-1, beam_size, -1), num_heads, like)


def additive_mask(is_kept: Tensor, num_heads: int, like: Tensor) -> Tensor:
    """Return the mask [S*H, K, E] of ``attend``: 0 where ``is_kept`` [S, K, E], else -inf.

    It has the dtype of ``like``.
    """
    mask = like.new_zeros(is_kept.shape).masked_fill_(~is_kept, -torch.inf)
    return mask[:, None].expand(-1, num_heads, -1, -1).flatten(0, 1)


class DecoderState(ABC):
    """What the first sub-layer of each decoder layer keeps of the past of every hypothesis.

    A sub-layer that attends to the past keeps keys and values (``PastCache``). Another kind of
    sub-layer, such as a recurrent one, needs another subclass, and nothing else in the search.
    """

    @staticmethod
    @abstractmethod
    def first(sublayer: nn.Module, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return what ``sublayer`` makes of first tokens ``rows`` [B, any], and what to keep."""

    @abstractmethod
    def start(self, slots: Sequence[int], kept: Tensor) -> None:
        """Let one token each be the past of all hypotheses in ``slots``.

        ``kept`` [B, layers, any] is what ``first`` returned.
        """

    @abstractmethod
    def advance(self, parents: Any, is_free: Any) -> None:
        """Begin a step: each hypothesis inherits the past of its parent.

        The place of the parent in the beam is in ``parents`` [S, K]. Hypotheses of slots with
        ``is_free`` [S] have no past. Both are arrays of numpy, or tensors on the device where a
        step is recorded.
        """

    @abstractmethod
    def attend(self, layer: int, sublayer: nn.Module, rows: Tensor) -> Tensor:
        """Return what ``sublayer`` of a layer makes of the newest tokens ``rows`` [S*K, any]."""

    @abstractmethod
    def forget(self, slots: Sequence[int]) -> None:
        """Set all that is kept for ``slots`` to 0, so that NaN does not reach their next ones."""


class GrowingState(DecoderState):
    """A state that makes the room that it needs at each step."""

    @abstractmethod
    def __init__(self, num_slots: int, beam_size: int, shape: HeadShape, like: Tensor) -> None:
        """Make an empty state with the dtype and device of ``like``."""

    @abstractmethod
    def keep_slots(self, slots: Sequence[int]) -> None:
        """Drop all slots but these, at least one; ``slots[i]`` becomes slot i."""


class PastCache(DecoderState):
    """The keys and values of the past of every hypothesis.

    The subclass stores the ancestry: which entries are in the past of which hypothesis.
    """

    _places: Places | None = None  # of the step
    _mask: Tensor | None = None  # S*H K E, of the step

    def __init__(self, cached: CachedLayers, num_heads: int) -> None:
        self.cached, self._num_heads = cached, num_heads

    @staticmethod
    def first(sublayer: nn.Module, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return attention of first tokens to themselves, and their keys and values."""
        assert isinstance(sublayer, SelfAttention)
        _, keys, values = sublayer.project(rows)
        return sublayer.output(values), torch.cat([keys, values], dim=1)

    def attend(self, layer: int, sublayer: nn.Module, rows: Tensor) -> Tensor:
        """Keep the keys and values of the newest tokens; return their attention to the past."""
        assert isinstance(sublayer, SelfAttention)
        queries, keys, values = sublayer.project(rows)
        assert self._places is not None, "a step has begun"
        assert self._mask is not None
        (slots, places), entries = self._places, self.cached.layers[layer]
        shape = (*places.shape, self._num_heads, -1)  # S K H D
        entries.keys[slots, :, :, places] = keys.view(shape)
        entries.values[slots, :, places] = values.view(shape)
        return sublayer.output(attend(queries, entries, self._mask))

    @abstractmethod
    def forget_ancestry(self, slots: Sequence[int]) -> None:
        """Let the first place be the only past of all hypotheses in ``slots``."""

    def start(self, slots: Sequence[int], kept: Tensor) -> None:
        """Let one entry each be the past of all hypotheses in ``slots``."""
        self.forget_ancestry(slots)
        at = self.cached.at(slots)
        for entries, of_layer in zip(self.cached.layers, kept.unbind(1), strict=True):
            _, num_heads, d_k, _ = entries.keys.shape
            keys, values = of_layer.tensor_split([num_heads * d_k], dim=1)
            entries.keys[at, :, :, 0] = keys.unflatten(1, (num_heads, -1))
            entries.values[at, :, 0] = values.unflatten(1, (num_heads, -1))

    def forget(self, slots: Sequence[int]) -> None:
        """Set all entries of ``slots`` to 0: the mask hides old ones, but not if they are NaN."""
        self.cached.set_to_0(slots)


class GrowingPast(PastCache, GrowingState):
    """The past of every hypothesis: its entries, and which of them are in whose past.

    Each step writes the K new entries of a slot into places that are free: those whose entry is in
    the past of no hypothesis. Hypotheses of a beam share most of their past, so only a few more
    places are in use than one hypothesis has tokens. When hypotheses change places in the beam,
    the entries stay where they are; only the ancestry is reordered, which marks the entries in the
    past of each hypothesis.

    A slot's places depend on its own sentence only, so that its sums have the same order whatever
    other slots hold. Attention reads all the room for entries, where the mask hides what a
    hypothesis does not attend to.
    """

    def __init__(self, num_slots: int, beam_size: int, shape: HeadShape, like: Tensor) -> None:
        """Make an empty cache with the dtype and device of ``like``."""
        super().__init__(CachedLayers.zeros(num_slots, ROOM_STEP, shape, like), shape.num_heads)
        # S K E, the ancestry; on the CPU, so that finding places does not wait for a GPU.
        self.is_past: NDArray[np.bool_] = np.zeros((num_slots, beam_size, ROOM_STEP), np.bool_)
        self._like = like

    def forget_ancestry(self, slots: Sequence[int]) -> None:
        """Let the first place be the only past of all hypotheses in ``slots``."""
        self.is_past[slots] = False
        self.is_past[slots, :, 0] = True

    def advance(self, parents: Any, is_free: Any) -> None:
        """Find places for an entry of each hypothesis, by arrays of numpy."""
        num_slots, beam_size = parents.shape
        slots = np.arange(num_slots)[:, None]
        self.is_past = self.is_past[slots, parents]
        self.is_past[is_free] = False
        is_used = np.any(self.is_past, axis=1)  # S E
        places = _first_free(is_used, beam_size)
        end = int(max(places.max() + 1, _behind_last(is_used)))
        self.cached.fit(end, _room_for(end))
        self.is_past = _with_room(self.is_past, self.cached.room)
        self.is_past[slots, np.arange(beam_size), places] = True
        device = self._like.device
        self._places = Places.of(sent_to(device, places))
        self._mask = additive_mask(sent_to(device, self.is_past), self._num_heads, self._like)

    def keep_slots(self, slots: Sequence[int]) -> None:
        """Drop all slots but these, at least one."""
        self.is_past = self.is_past[list(slots)]
        end = _behind_last(np.any(self.is_past, axis=1))
        self.cached.keep(slots, _room_for(end + self.is_past.shape[1]))  # for the next step


class MemoryCache(ABC):
    """The keys and values of each slot's source sentence, shared by its beam."""

    mask: Tensor | None = None  # S*H K E

    def __init__(self, cached: CachedLayers) -> None:
        self.cached = cached

    @abstractmethod
    def make_room(self, slots: Sequence[int], lengths: Sequence[int]) -> None:
        """Make room for sources of these ``lengths`` in ``slots``."""

    def put(self, layer: int, slots: Tensor, new: KeysValues) -> None:
        """Write the keys [B, H, D, E] and values [B, H, E, D] of the sources in ``slots`` [B]."""
        entries = self.cached.layers[layer]
        entries.keys[slots, :, :, : new.room] = new.keys
        entries.values[slots, :, : new.room] = new.values

    def attend(self, layer: int, attention: MemoryAttention, rows: Tensor) -> Tensor:
        """Return attention [S*K, any] of ``rows`` to the sources, in one layer."""
        assert self.mask is not None
        attended = attend(attention.queries(rows), self.cached.layers[layer], self.mask)
        return attention.output(attended)

    def forget(self, slots: Sequence[int]) -> None:
        """Set all entries of ``slots`` to 0, also those that the next source leaves as they are."""
        self.cached.set_to_0(slots)


class GrowingMemory(MemoryCache):
    """The sources of all slots, in the room that they need."""

    def __init__(self, num_slots: int, beam_size: int, shape: HeadShape, like: Tensor) -> None:
        """Make an empty cache with the dtype and device of ``like``."""
        super().__init__(CachedLayers.zeros(num_slots, 1, shape, like))
        self._num_heads, self._beam_size = shape.num_heads, beam_size
        self.lengths = [1] * num_slots  # of the sources
        self._like = like

    def make_room(self, slots: Sequence[int], lengths: Sequence[int]) -> None:
        """Make room for sources of these ``lengths`` in ``slots``."""
        for slot, length in zip(slots, lengths, strict=True):
            self.lengths[slot] = length
        self.cached.fit(self._needed(), self._needed())
        self.mask = None

    def keep_slots(self, slots: Sequence[int]) -> None:
        """Drop all other slots."""
        self.lengths = [self.lengths[slot] for slot in slots]
        self.cached.keep(slots, self._needed())
        self.mask = None

    def attend(self, layer: int, attention: MemoryAttention, rows: Tensor) -> Tensor:
        """Return attention [S*K, any] of ``rows`` to the sources, in one layer."""
        if self.mask is None:
            of_slots = self.lengths, self.cached.room, self._beam_size, self._num_heads
            self.mask = mask_of_sources(*of_slots, self._like)
        return super().attend(layer, attention, rows)

    def _needed(self) -> int:
        """Return the room for the longest source."""
        return room_of_sources(max(self.lengths, default=1))


def _first_free(is_used: NDArray[np.bool_], number: int) -> NDArray[np.int64]:
    """Return the first free places [S, number] of ``is_used`` [S, E]; some may be behind it."""
    num_slots, room = is_used.shape
    wider = np.zeros((num_slots, room + number), np.bool_)  # np.pad takes ten times as long
    wider[:, :room] = is_used
    return np.argsort(wider, axis=1, kind="stable")[:, :number]


def _with_room(is_past: NDArray[np.bool_], room: int) -> NDArray[np.bool_]:
    """Return ``is_past`` [S, K, E] with E = ``room``, cut or filled up with False."""
    if (more := room - is_past.shape[2]) <= 0:
        return is_past[:, :, :room]
    return np.pad(is_past, ((0, 0), (0, 0), (0, more)))


def _behind_last(is_used: NDArray[np.bool_]) -> int:
    """Return the place behind the last one of ``is_used`` [S, E] in any slot."""
    return int(np.flatnonzero(is_used.any(axis=0)).max(initial=-1)) + 1


def _room_for(num_entries: int) -> int:
    """Return room for ``num_entries`` and for some of the next steps."""
    steps = max(1, round(num_entries * ROOM_GROWTH / ROOM_STEP))
    return -(-num_entries // ROOM_STEP) * ROOM_STEP + (steps - 1) * ROOM_STEP
