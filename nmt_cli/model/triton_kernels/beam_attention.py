"""Attention of the newest tokens of a beam to the past and to the source, in the search.

A program computes the hypotheses of a sentence, which share its keys and values, for a head. torch
needs seven kernels for that, and masks of all heads.

Legend: S slots, K beam, H heads, E entries of a slot, D d_k, V d_v.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

ENTRIES = 64  # that a program reads at a time
LEAST_OF_PRODUCT = 16  # rows and columns


def attend_to_past(
    rows: tuple[Tensor, Tensor, Tensor],
    keys: Tensor,
    values: Tensor,
    is_past: Tensor,
    places: Tensor,
    lengths: Tensor,
) -> Tensor:
    """Return softmax(QK^T / sqrt(D)) V [S*K, H*V]; keep the newest keys and values.

    ``rows`` are the queries, keys and values [S*K, any] of the newest tokens, which have the same
    strides. They get the ``places`` [S, K] in the entries ``keys`` [S, H, D, E] and ``values``
    [S, H, E, V]. ``is_past`` [S, K, E] is True for entries that a hypothesis attends to: some of
    the first ``lengths`` [S], and the rest is not read. Loads are fast if E is a multiple of 16, as
    the rooms of graphs are.
    """
    output = torch.empty_like(rows[2], memory_format=torch.contiguous_format)
    _launch(rows, keys, values, (is_past.view(torch.uint8), places, lengths), output)
    return output


def attend_to_sources(queries: Tensor, keys: Tensor, values: Tensor, lengths: Tensor) -> Tensor:
    """Return softmax(QK^T / sqrt(D)) V [S*K, H*V] for ``queries`` [S*K, H*D].

    The first ``lengths`` [S] of the entries ``keys`` [S, H, D, E] and ``values`` [S, H, E, V] are
    attended to.
    """
    output = queries.new_empty(len(queries), values.shape[1] * values.shape[3])
    _launch((queries, None, None), keys, values, (None, None, lengths), output)
    return output


def _launch(
    rows: tuple[Any, ...], keys: Tensor, values: Tensor, seen: tuple[Any, ...], output: Tensor
) -> None:
    num_slots, num_heads, d_k, room = keys.shape
    d_v, beam_size = values.shape[3], len(output) // num_slots
    tiles = [max(LEAST_OF_PRODUCT, triton.next_power_of_2(each)) for each in (beam_size, d_k, d_v)]
    is_rounded = torch.backends.cuda.matmul.fp32_precision == "tf32"
    _attend[num_slots, num_heads](
        *(*rows, keys, values, *seen, output, rows[0].stride(0), room, d_k**-0.5),
        BEAM=beam_size,
        D_K=d_k,
        D_V=d_v,
        ROWS=tiles[0],
        K_TILE=tiles[1],
        V_TILE=tiles[2],
        ENTRIES=ENTRIES,
        PRECISION="tf32" if is_rounded else "ieee",
        num_stages=1,
    )


@triton.jit
def _attend(
    queries, new_keys, new_values, keys, values, is_past, places, lengths, output,
    stride, room, scale,
    BEAM: tl.constexpr, D_K: tl.constexpr, D_V: tl.constexpr,
    ROWS: tl.constexpr, K_TILE: tl.constexpr, V_TILE: tl.constexpr, ENTRIES: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute by online softmax. With ``is_past``, each row also attends to its newest key.

    That is written among the others, but not read from there: no program waits for a write.
    """
    slot, head, num_heads = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    k, column, wide = tl.arange(0, ROWS), tl.arange(0, K_TILE), tl.arange(0, V_TILE)
    row, is_row = slot * BEAM + k, k < BEAM
    of_key, of_value = (column < D_K)[None, :], (wide < D_V)[None, :]
    at_key = row.to(tl.int64)[:, None] * stride + head * D_K + column[None, :]
    query = tl.load(queries + at_key, mask=is_row[:, None] & of_key, other=0.0)
    slot_head = slot.to(tl.int64) * num_heads + head
    keys += slot_head * D_K * room
    values += slot_head * room * D_V
    scale *= 1.4426950408889634  # powers of 2 are computed
    end = tl.load(lengths + slot).to(tl.int32)
    if is_past is not None:
        place = tl.load(places + row, mask=is_row, other=-1)
        at_value = row.to(tl.int64)[:, None] * stride + head * D_V + wide[None, :]
        new_key = tl.load(new_keys + at_key, mask=is_row[:, None] & of_key, other=0.0)
        new_value = tl.load(new_values + at_value, mask=is_row[:, None] & of_value, other=0.0)
        new_at_key = column[None, :] * room + place[:, None]
        tl.store(keys + new_at_key, new_key, mask=is_row[:, None] & of_key)
        new_at_value = place[:, None] * D_V + wide[None, :]
        tl.store(values + new_at_value, new_value, mask=is_row[:, None] & of_value)
        top = tl.sum(query.to(tl.float32) * new_key.to(tl.float32), 1) * scale
        total = tl.full([ROWS], 1.0, tl.float32)
        attended = new_value.to(tl.float32)
    else:
        top = tl.full([ROWS], float("-inf"), tl.float32)
        total = tl.zeros([ROWS], tl.float32)
        attended = tl.zeros([ROWS, V_TILE], tl.float32)
    for first in range(0, end, ENTRIES):
        e = first + tl.arange(0, ENTRIES)
        is_there = e < end
        # What lies along the room is read as far as that goes: 16 bytes are only read at once where
        # all of them are wanted, and a room is a multiple of 16. A name that is assigned in a loop
        # keeps its shape.
        is_in_room = (e < room)[None, :]
        of_entry = (column < D_K)[:, None] & is_in_room
        key = tl.load(keys + column[:, None] * room + e[None, :], mask=of_entry, other=0.0)
        entry_value = e[:, None] * D_V + wide[None, :]
        value = tl.load(values + entry_value, mask=is_there[:, None] & of_value, other=0.0)
        scores = tl.dot(query, key, input_precision=PRECISION) * scale
        is_seen = is_row[:, None] & is_there[None, :]
        if is_past is not None:
            place_of_row = row.to(tl.int64)[:, None] * room + e[None, :]
            mask = is_row[:, None] & is_in_room
            is_seen &= tl.load(is_past + place_of_row, mask=mask, other=0) != 0
            is_seen &= e[None, :] != place[:, None]
        scores = tl.where(is_seen, scores, float("-inf"))
        new_top = tl.maximum(top, tl.max(scores, 1))
        shift = tl.where(new_top == float("-inf"), 0.0, new_top)  # of rows that are not there
        weights = tl.exp2(scores - shift[:, None])
        faded = tl.exp2(top - shift)
        total = total * faded + tl.sum(weights, 1)
        product = tl.dot(weights.to(value.dtype), value, input_precision=PRECISION)
        attended = attended * faded[:, None] + product
        top = new_top
    total = tl.where(is_row, total, 1.0)
    at_output = row.to(tl.int64)[:, None] * (num_heads * D_V) + head * D_V + wide[None, :]
    found = (attended / total[:, None]).to(output.dtype.element_ty)
    tl.store(output + at_output, found, mask=is_row[:, None] & of_value)
