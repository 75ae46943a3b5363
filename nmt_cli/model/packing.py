"""Batches without padding, and the padded groups that attention alone needs.

Legend: T rows of a batch: the tokens of all sentences, and spare rows behind them where the number
is rounded up; B sentences, P places in padded groups, L places of a sentence.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

# What one more group costs, in query-key pairs: calling attention once more takes as long.
GROUP_OVERHEAD = 100  # on a CPU, where padding stays under 5 %
GROUP_OVERHEAD_ON_GPU = 2_000


class Packed(NamedTuple):
    """The sentences of one side of a batch, one behind the other.

    Spare rows belong to no sentence: nothing attends to them and no gradient comes from them.
    """

    tokens: Tensor  # T, on the device of the model
    positions: Tensor  # T, place of each token in its sentence, on the device of the model
    lengths: tuple[int, ...]  # B, all at least 1

    @property
    def num_tokens(self) -> int:
        """The tokens of all sentences, without spare rows."""
        return sum(self.lengths)

    @property
    def longest(self) -> int:
        """The length of the longest sentence."""
        return max(self.lengths)


def pack(
    tokens: Tensor,
    lengths: Sequence[int],
    device: torch.device | str = "cpu",
    *,
    round_up: bool = False,
) -> Packed:
    """Return the flat ``tokens`` of sentences of these ``lengths`` as a batch on ``device``.

    ``round_up`` adds spare rows, at most 1/32, so that batches have few different numbers of rows.
    """
    counts = torch.tensor(lengths, dtype=torch.int64)
    starts = counts.cumsum(0) - counts
    positions = torch.arange(len(tokens)) - starts.repeat_interleave(counts)
    if round_up:
        spare = rounded_up(len(tokens)) - len(tokens)
        tokens, positions = F.pad(tokens, (0, spare)), F.pad(positions, (0, spare))
    return Packed(
        tokens.to(device, torch.int64, non_blocking=True),
        positions.to(device, non_blocking=True),
        tuple(lengths),
    )


def rounded_up(count: int) -> int:
    """Return the next of 32 equal steps between two powers of two."""
    step = max(1, 1 << count.bit_length() >> 6)
    return -(-count // step) * step


class Side(NamedTuple):
    """Where the rows of one side stand in the padded groups, and back."""

    to_padded: Tensor  # P: the packed row shown at each place; holes show a row of their sentence
    to_packed: Tensor  # T: the place of each packed row; any for spare rows
    holes: Tensor  # places that show no row of their own
    spare: Tensor  # rows that belong to no sentence


class HeadRows(NamedTuple):
    """Where the vectors of each head of packed rows stand, if every head has its padded groups.

    A row has N parts, such as queries, keys and values, of H heads each.
    """

    num_parts: int
    num_heads: int
    vectors: Tensor  # N*H*P: the packed vector shown at each place
    places: Tensor  # T*N*H: the place of each packed vector
    holes: Tensor  # places that show no vector of their own
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
    keep: Tensor | None  # B 1 1 L, True = attend; None where every key counts


class AttentionLayout(NamedTuple):
    """How the queries and keys of a batch are grouped for attention."""

    queries: Side
    keys: Side
    groups: tuple[Group, ...]
    known_head_rows: dict[tuple[bool, int, int], HeadRows]

    def head_rows(self, num_parts: int, num_heads: int, *, of_keys: bool = False) -> HeadRows:
        """Return where the heads' vectors of one side stand; computed once for all layers."""
        key = of_keys, num_parts, num_heads
        if key not in self.known_head_rows:
            shapes = [
                (group.num_sentences, group.key_length if of_keys else group.query_length)
                for group in self.groups
            ]
            side = self.keys if of_keys else self.queries
            self.known_head_rows[key] = _head_rows(side, shapes, num_parts, num_heads)
        return self.known_head_rows[key]


def attention_layout(queries: Packed, keys: Packed) -> AttentionLayout:
    """Return the groups in which sentence i of ``queries`` attends to sentence i of ``keys``."""
    device = queries.tokens.device
    overhead = GROUP_OVERHEAD if device.type == "cpu" else GROUP_OVERHEAD_ON_GPU
    members = _group_by_length(queries.lengths, keys.lengths, overhead)
    groups = tuple(
        _group([queries.lengths[i] for i in group], [keys.lengths[i] for i in group], device)
        for group in members
    )
    query_side = _side(queries, members)
    if queries is keys:
        return AttentionLayout(query_side, query_side, groups, {})
    return AttentionLayout(query_side, _side(keys, members), groups, {})


def unpack(rows: Tensor, side: Side) -> Tensor:
    """Return packed ``rows`` [T, ...] at their places in the groups [P, ...]."""
    return _MoveRows.apply(rows, side.to_padded, side.to_packed, side.spare)  # type: ignore[no-untyped-call]


def repack(places: Tensor, side: Side) -> Tensor:
    """Return the rows [T, ...] that stand at ``places`` [P, ...], without the holes."""
    return _MoveRows.apply(places, side.to_packed, side.to_padded, side.holes)  # type: ignore[no-untyped-call]


class _MoveRows(torch.autograd.Function):
    """Rows moved by an index whose gradient is moved by the inverse one.

    The gradient that autograd knows for ``x[index]`` adds row by row (8 % of a training step).
    Rows never share a place, so gathering by the inverse is the same, with zero for what is not
    moved: holes on the way back, spare rows on the way there. What holes show needs no care: it is
    masked or never read, and so receives no gradient.
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
    """Return groups of sentence numbers: a sentence joins the group before where that costs less
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


def _group(queries: list[int], keys: list[int], device: torch.device) -> Group:
    longest = max(keys)
    keep = None
    if min(keys) < longest:
        keep = torch.arange(longest) < torch.tensor(keys)[:, None]  # B L
        keep = keep[:, None, None, :].to(device, non_blocking=True)
    return Group(len(queries), max(queries), longest, keep)


def _side(batch: Packed, members: list[list[int]]) -> Side:
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
    indices = (to_padded, to_packed, holes, spare)
    return Side(*(index.to(batch.tokens.device, non_blocking=True) for index in indices))


def _head_rows(
    side: Side, shapes: list[tuple[int, int]], num_parts: int, num_heads: int
) -> HeadRows:
    """Return the places of the heads' vectors in groups of (sentences, places of a sentence)."""
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
