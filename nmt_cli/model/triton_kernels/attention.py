"""Attention of short packed sentences, a program for each sentence and head (section 3.2.1).

FlashAttention's tiles have 128 rows; those here are as long as the longest sentence of a batch, up
to a limit. A program owns its sentence and head, so the backward pass needs no sums between
programs: it writes each gradient once, in the layout of the projections, and always the same.

Legend: T rows of queries, S rows of keys, B sentences, H heads, K d_k, V d_v.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from nmt_cli.model.attention_layout import AttentionLayout
from nmt_cli.model.attention_window import FARTHEST, Window
from nmt_cli.model.dropout import KernelDropout
from nmt_cli.model.triton_kernels.dropout import kept_of

LEAST_TILE, LARGEST_TILE = 32, 128  # rows, unless those of wide heads are fewer
LEAST_OF_PRODUCT = 16  # rows and columns
# Numbers of a tile: more do not fit the registers of an A100 or H100, as its assembler reports.
FORWARD_NUMBERS, BACKWARD_NUMBERS = 128 * 64, 64 * 64
# Of a tile, for a warp. With half as many, the 32 rows of a short sentence take 1.4 to 2 times as
# many instructions, and no more of them fit a GPU at a time. With twice as many, larger tiles do
# not fit the registers.
NUMBERS_OF_WARP = 1024


class Heads(NamedTuple):
    """The heads of an attention, and the dropout of its weights."""

    number: int
    d_k: int
    d_v: int
    drawn: KernelDropout


def attend(
    layout: AttentionLayout,
    window: Window,
    heads: Heads,
    first: Tensor,
    keys_values: Tensor | None = None,
) -> Tensor:
    """Return softmax(QK^T / sqrt(K)) V of every head as packed rows [T, HV].

    ``first`` are the rows of queries, keys and values [T, 2HK+HV]; or those of queries [T, HK] if
    ``keys_values`` [S, HK+HV] are the others. Every row must belong to a sentence.
    """
    return _Attention.apply(first, keys_values, layout, window, heads)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        first: Tensor,
        keys_values: Tensor | None,
        layout: AttentionLayout,
        window: Window,
        heads: Heads,
    ) -> Tensor:
        parts = _parts(first, keys_values, heads)
        output = first.new_empty(len(first), heads.number * heads.d_v)
        log_sums = first.new_empty(heads.number, len(first), dtype=torch.float32)
        ctx.call = layout, window, heads
        _launch(_forward, FORWARD_NUMBERS, ctx.call, parts, (output, log_sums))
        ctx.save_for_backward(first, keys_values, output, log_sums)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        first, keys_values, output, log_sums = ctx.saved_tensors
        *_, heads = ctx.call
        of_first = torch.empty_like(first)
        of_others = None if keys_values is None else torch.empty_like(keys_values)
        parts = _parts(first, keys_values, heads)
        written = _parts(of_first, of_others, heads)
        of_output = gradients[0].contiguous()
        others = output, log_sums, of_output, *written
        _launch(_backward, BACKWARD_NUMBERS, ctx.call, parts, others)
        return of_first, of_others, None, None, None


def _parts(first: Tensor, keys_values: Tensor | None, heads: Heads) -> tuple[Tensor, ...]:
    """Return views of the queries, keys and values."""
    keys, values = heads.number * heads.d_k, heads.number * heads.d_v
    if keys_values is None:
        return first.split((keys, keys, values), dim=1)
    return first, *keys_values.split((keys, values), dim=1)


def _launch(
    kernel: Any,
    most_numbers: int,
    call: tuple[AttentionLayout, Window, Heads],
    parts: tuple[Tensor, ...],
    others: tuple[Tensor, ...],
) -> None:
    layout, window, heads = call
    queries, keys, values = parts
    of_queries, of_keys = layout.query_sentences, layout.key_sentences
    widths = [
        max(LEAST_OF_PRODUCT, triton.next_power_of_2(each)) for each in (heads.d_k, heads.d_v)
    ]
    longest = max(of_queries.longest, of_keys.longest)
    tile = min(max(LEAST_TILE, triton.next_power_of_2(longest)), LARGEST_TILE)
    # Scores of a tile and a tile take registers, too, with narrow heads most of them.
    widest = max(*widths, LARGEST_TILE // 2)
    tile = max(LEAST_OF_PRODUCT, min(tile, most_numbers // widest))
    back, ahead = (FARTHEST if each < 0 else each for each in window)
    is_rounded = torch.backends.cuda.matmul.fp32_precision == "tf32"
    kernel[len(of_queries.bounds) - 1, heads.number](
        *(queries, keys, values, *others, of_queries.bounds, of_keys.bounds),
        *(len(queries), queries.stride(0), keys.stride(0)),
        *(min(back, longest), min(ahead, longest), heads.d_k**-0.5),
        *heads.drawn,
        D_K=heads.d_k,
        D_V=heads.d_v,
        TILE=tile,
        K_TILE=widths[0],
        V_TILE=widths[1],
        HAS_DROPOUT=heads.drawn.rate > 0.0,
        IS_ONE_TILE=longest <= tile,
        PRECISION="tf32" if is_rounded else "ieee",
        num_warps=tile * widest // NUMBERS_OF_WARP,
        num_stages=1,
    )


@triton.jit
def _load(
    at, first, end, stride, WIDTH: tl.constexpr, TILE: tl.constexpr, WIDTH_TILE: tl.constexpr
):
    """Return the rows of a head from ``first`` on; what is beyond ``end`` or ``WIDTH`` is 0."""
    row = first + tl.arange(0, TILE)[:, None]
    column = tl.arange(0, WIDTH_TILE)[None, :]
    is_there = (row < end) & (column < WIDTH)
    return tl.load(at + row.to(tl.int64) * stride + column, mask=is_there, other=0.0)


@triton.jit
def _store(at, first, end, stride, numbers, WIDTH: tl.constexpr):
    row = first + tl.arange(0, numbers.shape[0])[:, None]
    column = tl.arange(0, numbers.shape[1])[None, :]
    is_there = (row < end) & (column < WIDTH)
    tl.store(
        at + row.to(tl.int64) * stride + column, numbers.to(at.dtype.element_ty), mask=is_there
    )


@triton.jit
def _scores(query, key, i, j, num_keys, back, ahead, scale, PRECISION: tl.constexpr):
    """Return QK^T / sqrt(K) in units of log 2; -inf where query ``i`` does not reach key ``j``."""
    ahead_by = j[None, :] - i[:, None]
    is_reached = (ahead_by >= -back) & (ahead_by <= ahead) & (j < num_keys)[None, :]
    product = tl.dot(query, tl.trans(key), input_precision=PRECISION)
    return tl.where(is_reached, product * (scale * 1.4426950408889634), float("-inf"))


@triton.jit(do_not_specialize=["num_query_rows", "back", "ahead", "number"])
def _forward(
    queries, keys, values, output, log_sums, query_bounds, key_bounds,
    num_query_rows, query_stride, key_stride, back, ahead, scale, rate, seed, number,
    D_K: tl.constexpr, D_V: tl.constexpr, TILE: tl.constexpr,
    K_TILE: tl.constexpr, V_TILE: tl.constexpr, HAS_DROPOUT: tl.constexpr,
    IS_ONE_TILE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write softmax(QK^T / sqrt(K)) V of a sentence and head, and log2 of the softmax's sums.

    If there are several tiles of keys, the maximum and the sum change with each (online softmax).
    """
    sentence, head, num_heads = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    first, end = tl.load(query_bounds + sentence), tl.load(query_bounds + sentence + 1)
    first_key, end_key = tl.load(key_bounds + sentence), tl.load(key_bounds + sentence + 1)
    queries += head * D_K
    keys += head * D_K
    values += head * D_V
    output += head * D_V
    output_stride = num_heads * D_V
    num_keys = end_key - first_key
    for start in range(0, end - first, TILE):
        i = start + tl.arange(0, TILE)
        query = _load(queries, first + start, end, query_stride, D_K, TILE, K_TILE)
        top = tl.full([TILE], float("-inf"), tl.float32)
        total = tl.zeros([TILE], tl.float32)
        attended = tl.zeros([TILE, V_TILE], tl.float32)
        nearest = tl.maximum(start - back, 0) // TILE * TILE
        for near in range(nearest, tl.minimum(num_keys, start + TILE + ahead), TILE):
            j = near + tl.arange(0, TILE)
            key = _load(keys, first_key + near, end_key, key_stride, D_K, TILE, K_TILE)
            value = _load(values, first_key + near, end_key, key_stride, D_V, TILE, V_TILE)
            scores = _scores(query, key, i, j, num_keys, back, ahead, scale, PRECISION)
            new_top = tl.maximum(top, tl.max(scores, 1))
            shift = tl.where(new_top == float("-inf"), 0.0, new_top)  # no key is reached yet
            weights = tl.exp2(scores - shift[:, None])
            faded = tl.exp2(top - shift)
            total = total * faded + tl.sum(weights, 1)
            if HAS_DROPOUT:
                row = (first + i) * num_heads + head
                kept = kept_of(seed, number, row[:, None], j[None, :], rate)
                weights = tl.where(kept, weights / (1.0 - rate), 0.0)
            product = tl.dot(weights.to(value.dtype), value, input_precision=PRECISION)
            attended = attended * faded[:, None] + product
            top = new_top
        has_keys = total > 0.0  # a sentence may have none; then its output is 0
        total = tl.where(has_keys, total, 1.0)
        _store(output, first + start, end, output_stride, attended / total[:, None], D_V)
        log_sum = tl.where(has_keys, top + tl.log2(total), float("inf"))
        place = log_sums + head * num_query_rows + first + i
        tl.store(place, log_sum, mask=i < end - first)


@triton.jit
def _score_gradients(
    query, key, value, of_output, log_sum, mean, row, i, j,
    num_keys, back, ahead, scale, rate, seed, number,
    HAS_DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return P, with dropout, and the gradient of QK^T of a tile.

    With P = softmax(QK^T / sqrt(K)), O = PV and dP = dO V^T, it is P * (dP - rowsum(dO * O)), here
    without the scale.
    """
    scores = _scores(query, key, i, j, num_keys, back, ahead, scale, PRECISION)
    weights = tl.exp2(scores - log_sum[:, None])
    of_weights = tl.dot(of_output, tl.trans(value), input_precision=PRECISION)
    left = weights
    if HAS_DROPOUT:
        kept = kept_of(seed, number, row[:, None], j[None, :], rate)
        left = tl.where(kept, weights / (1.0 - rate), 0.0)
        of_weights = tl.where(kept, of_weights / (1.0 - rate), 0.0)
    return left, weights * (of_weights - mean[:, None])


@triton.jit(do_not_specialize=["num_query_rows", "back", "ahead", "number"])
def _backward(
    queries, keys, values, output, log_sums, of_output, of_queries, of_keys, of_values,
    query_bounds, key_bounds,
    num_query_rows, query_stride, key_stride, back, ahead, scale, rate, seed, number,
    D_K: tl.constexpr, D_V: tl.constexpr, TILE: tl.constexpr,
    K_TILE: tl.constexpr, V_TILE: tl.constexpr, HAS_DROPOUT: tl.constexpr,
    IS_ONE_TILE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the gradients of Q, K and V of a sentence and head.

    That of Q is a sum over keys, those of K and V are sums over queries. If there are several
    tiles, the scores are computed twice, so that no sum leaves the program.
    """
    sentence, head, num_heads = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    first, end = tl.load(query_bounds + sentence), tl.load(query_bounds + sentence + 1)
    first_key, end_key = tl.load(key_bounds + sentence), tl.load(key_bounds + sentence + 1)
    queries += head * D_K
    of_queries += head * D_K
    keys += head * D_K
    of_keys += head * D_K
    values += head * D_V
    of_values += head * D_V
    output += head * D_V
    of_output += head * D_V
    log_sums += head * num_query_rows
    output_stride = num_heads * D_V
    num_queries, num_keys = end - first, end_key - first_key
    # Gradients of queries without keys are zeros that this loop writes, too.
    for near in range(0, tl.maximum(num_keys, 1), TILE):
        j = near + tl.arange(0, TILE)
        key = _load(keys, first_key + near, end_key, key_stride, D_K, TILE, K_TILE)
        value = _load(values, first_key + near, end_key, key_stride, D_V, TILE, V_TILE)
        of_key = tl.zeros([TILE, K_TILE], tl.float32)
        of_value = tl.zeros([TILE, V_TILE], tl.float32)
        nearest = tl.maximum(near - ahead, 0) // TILE * TILE
        for start in range(nearest, tl.minimum(num_queries, near + TILE + back), TILE):
            i = start + tl.arange(0, TILE)
            query = _load(queries, first + start, end, query_stride, D_K, TILE, K_TILE)
            out = _load(output, first + start, end, output_stride, D_V, TILE, V_TILE)
            of_out = _load(of_output, first + start, end, output_stride, D_V, TILE, V_TILE)
            log_sum = tl.load(log_sums + first + i, mask=i < num_queries, other=0.0)
            mean = tl.sum(out.to(tl.float32) * of_out.to(tl.float32), 1)
            weights, of_scores = _score_gradients(
                *(query, key, value, of_out, log_sum, mean, (first + i) * num_heads + head),
                *(i, j, num_keys, back, ahead, scale, rate, seed, number, HAS_DROPOUT, PRECISION),
            )
            of_scores = of_scores.to(query.dtype)
            left = tl.trans(weights.to(value.dtype))
            of_value += tl.dot(left, of_out, input_precision=PRECISION)
            of_key += tl.dot(tl.trans(of_scores), query, input_precision=PRECISION)
            if IS_ONE_TILE:
                of_query = tl.dot(of_scores, key, input_precision=PRECISION) * scale
                _store(of_queries, first, end, query_stride, of_query, D_K)
        _store(of_keys, first_key + near, end_key, key_stride, of_key * scale, D_K)
        _store(of_values, first_key + near, end_key, key_stride, of_value, D_V)
    if not IS_ONE_TILE:
        for start in range(0, num_queries, TILE):
            i = start + tl.arange(0, TILE)
            query = _load(queries, first + start, end, query_stride, D_K, TILE, K_TILE)
            out = _load(output, first + start, end, output_stride, D_V, TILE, V_TILE)
            of_out = _load(of_output, first + start, end, output_stride, D_V, TILE, V_TILE)
            log_sum = tl.load(log_sums + first + i, mask=i < num_queries, other=0.0)
            mean = tl.sum(out.to(tl.float32) * of_out.to(tl.float32), 1)
            of_query = tl.zeros([TILE, K_TILE], tl.float32)
            nearest = tl.maximum(start - back, 0) // TILE * TILE
            for near in range(nearest, tl.minimum(num_keys, start + TILE + ahead), TILE):
                j = near + tl.arange(0, TILE)
                key = _load(keys, first_key + near, end_key, key_stride, D_K, TILE, K_TILE)
                value = _load(values, first_key + near, end_key, key_stride, D_V, TILE, V_TILE)
                _, of_scores = _score_gradients(
                    *(query, key, value, of_out, log_sum, mean, (first + i) * num_heads + head),
                    *(i, j, num_keys, back, ahead, scale, rate, seed, number),
                    *(HAS_DROPOUT, PRECISION),
                )
                of_query += tl.dot(of_scores.to(key.dtype), key, input_precision=PRECISION)
            _store(of_queries, first + start, end, query_stride, of_query * scale, D_K)
