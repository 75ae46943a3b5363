"""Index tensors between packed rows and padded groups of sentences, for attention.

The rest of the model works on each row alone; only attention needs to know the sentences.

Legend: T rows of a batch, spare ones included; B sentences, P places in padded groups, L places of
a sentence, H heads, K width of a head, N parts of a row.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from nmt_cli.hardware.device import sent_together
from nmt_cli.model.packing import Packed

# The cost of one more group, which is one more call of attention, in query-key pairs.
GROUP_OVERHEAD = 100  # on a CPU, where padding stays under 5 %
GROUP_OVERHEAD_ON_GPU = 2_000


class PaddedRows(NamedTuple):
    """Indices that move the rows of one side to the padded groups, and back."""

    to_padded: Tensor  # P: the packed row for each place; for holes, a row of their sentence
    to_packed: Tensor  # T: the place of each packed row; for spare rows, any place
    holes: Tensor  # the places of padding
    spare: Tensor  # rows that belong to no sentence


class HeadRows(NamedTuple):
    """Indices that move the vectors of each head to padded groups of that head, and back.

    A row has N parts, such as queries, keys and values, of H heads each.
    """

    num_parts: int
    num_heads: int
    vectors: Tensor  # N*H*P: the packed vector for each place
    places: Tensor  # T*N*H: the place of each packed vector
    holes: Tensor  # the places of padding
    spare: Tensor  # rows that belong to no sentence

    def to_padded(self, rows: Tensor) -> Tensor:
        """Return the vectors [N*H*P, K] of ``rows`` [T, N*H*K]."""
        width = rows.shape[1] // (self.num_parts * self.num_heads)
        return rows.reshape(-1, width).index_select(0, self.vectors)

    def to_packed(self, vectors: Tensor) -> Tensor:
        """Return the rows [T, N*H*K] of ``vectors`` [N*H*P, K]."""
        return vectors.index_select(0, self.places).view(
            -1, self.num_parts * self.num_heads * vectors.shape[1]
        )


class Group(NamedTuple):
    """Sentences of similar length, padded to the longest of them."""

    num_sentences: int
    query_length: int
    key_length: int
    keep: Tensor | None  # B 1 1 L, True = attend; None if there is no padding


class PaddedGroups(NamedTuple):
    """Groups of sentences of similar length, which are padded together, and their rows."""

    groups: tuple[Group, ...]
    queries: PaddedRows
    keys: PaddedRows  # and values


class AttentionLayout:
    """The indices for attention of sentence i of ``queries`` to sentence i of ``keys``.

    Each attention kernel uses other indices. They are computed at first use and kept, so that all
    layers share them.
    """

    def __init__(self, queries: Packed, keys: Packed) -> None:
        self.query_sentences, self.key_sentences = queries, keys
        self._head_rows: dict[tuple[bool, int, int], HeadRows] = {}

    @cached_property
    def padded(self) -> PaddedGroups:
        """The padded groups of sentences, and their rows."""
        device = self.query_sentences.tokens.device
        groups = padded_groups(self.query_sentences, self.key_sentences, device)
        return sent_together(device, groups)

    def head_rows(self, num_parts: int, num_heads: int, *, of_keys: bool = False) -> HeadRows:
        """Return the indices of the heads' vectors of one side."""
        key = of_keys, num_parts, num_heads
        if key not in self._head_rows:
            shapes = [
                (group.num_sentences, group.key_length if of_keys else group.query_length)
                for group in self.padded.groups
            ]
            side = self.padded.keys if of_keys else self.padded.queries
            self._head_rows[key] = _head_rows(side, shapes, num_parts, num_heads)
        return self._head_rows[key]


def padded_groups(queries: Packed, keys: Packed, device: torch.device) -> PaddedGroups:
    """Return the groups of a layout on the CPU, for attention on ``device``.

    Only the lengths of ``queries`` and ``keys`` matter, which may be on any device.
    """
    overhead = GROUP_OVERHEAD if device.type == "cpu" else GROUP_OVERHEAD_ON_GPU
    members = _group_by_length(queries.lengths, keys.lengths, overhead)
    groups = tuple(
        _group([queries.lengths[i] for i in group], [keys.lengths[i] for i in group])
        for group in members
    )
    rows = _side(queries, members)
    return PaddedGroups(groups, rows, rows if keys is queries else _side(keys, members))


def unpack(rows: Tensor, side: PaddedRows) -> Tensor:
    """Return packed ``rows`` [T, ...] moved to their places in the groups [P, ...]."""
    return _MoveRows.apply(rows, side.to_padded, side.to_packed, side.spare)  # type: ignore[no-untyped-call]


def repack(places: Tensor, side: PaddedRows) -> Tensor:
    """Return the packed rows [T, ...] of ``places`` [P, ...], without the holes."""
    return _MoveRows.apply(places, side.to_packed, side.to_padded, side.holes)  # type: ignore[no-untyped-call]


class _MoveRows(torch.autograd.Function):
    """Gathers rows by an index; the backward pass gathers the gradient by the inverse index.

    Autograd's own gradient of ``x[index]`` adds row by row, which takes 8 % of a training step.
    Rows never share a place, so gathering gives the same gradient, with zero for rows that were not
    moved: holes in ``repack``, spare rows in ``unpack``. Rows shown in holes get no gradient from
    there, because attention masks the holes or never reads them.
    """

    @staticmethod
    def forward(ctx, rows: Tensor, there: Tensor, back: Tensor, unmoved: Tensor) -> Tensor:  # type: ignore[no-untyped-def]  # noqa: ANN001
        ctx.save_for_backward(back, unmoved)
        return rows.index_select(0, there)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None, None, None]:  # type: ignore[no-untyped-def]  # noqa: ANN001
        back, unmoved = ctx.saved_tensors
        moved = gradient.index_select(0, back)
        if len(unmoved):
            moved.index_fill_(0, unmoved, 0.0)
        return moved, None, None, None


def _group_by_length(queries: Sequence[int], keys: Sequence[int], overhead: int) -> list[list[int]]:
    """Return groups of sentence numbers. A sentence joins the previous group if that costs less
    than a group of its own."""
    order = sorted(range(len(queries)), key=lambda i: (queries[i], keys[i]), reverse=True)
    groups: list[list[int]] = []
    longest_query = longest_key = 0
    for sentence in order:
        query, key = queries[sentence], keys[sentence]
        if groups:
            size = len(groups[-1])
            together = (size + 1) * max(longest_query, query) * max(longest_key, key)
            apart = size * longest_query * longest_key + query * key + overhead
            if together <= apart:
                groups[-1].append(sentence)
                longest_query, longest_key = max(longest_query, query), max(longest_key, key)
                continue
        groups.append([sentence])
        longest_query, longest_key = query, key
    return groups


def _group(queries: list[int], keys: list[int]) -> Group:
    longest = max(keys)
    keep = None
    if min(keys) < longest:
        keep = (torch.arange(longest) < torch.tensor(keys)[:, None])[:, None, None, :]  # B 1 1 L
    return Group(len(queries), max(queries), longest, keep)


def _side(batch: Packed, members: list[list[int]]) -> PaddedRows:
    counts = torch.tensor(batch.lengths)
    starts = counts.cumsum(0) - counts
    shown, real = [], []
    for group in members:
        group_lengths = counts[group][:, None]
        place = torch.arange(int(group_lengths.max()))
        shown.append((starts[group][:, None] + place.minimum(group_lengths - 1)).flatten())
        real.append((place < group_lengths).flatten())
    to_padded, is_real = torch.cat(shown), torch.cat(real)
    to_packed = torch.zeros(len(batch.tokens), dtype=torch.int64)
    to_packed[to_padded[is_real]] = is_real.nonzero().flatten()
    holes = is_real.logical_not().nonzero().flatten()
    spare = torch.arange(batch.num_tokens, len(batch.tokens))
    return PaddedRows(to_padded, to_packed, holes, spare)


def _head_rows(
    side: PaddedRows, shapes: list[tuple[int, int]], num_parts: int, num_heads: int
) -> HeadRows:
    """Return the indices of the heads' vectors for groups of (sentences, places of a sentence)."""
    blocks, first = [], 0
    for num_sentences, length in shapes:
        size = num_sentences * length * num_heads
        block = torch.arange(first, first + size).view(num_sentences, num_heads, length)
        blocks.append(block.transpose(1, 2).reshape(-1, num_heads))
        first += size
    of_parts = first * torch.arange(num_parts)[:, None]
    places = torch.cat(blocks)[:, None, :] + of_parts  # P N H
    row = num_parts * num_heads
    vectors = torch.empty(places.numel(), dtype=torch.int64)
    vectors[places.flatten()] = (side.to_padded[:, None] * row + torch.arange(row)).flatten()
    return HeadRows(
        num_parts,
        num_heads,
        vectors,
        places[side.to_packed].flatten(),
        places[side.holes].flatten(),
        side.spare,
    )
