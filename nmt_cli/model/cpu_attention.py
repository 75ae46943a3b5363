"""The attention core on a CPU, from packed rows to packed rows, with its gradient.

Sentences are short, so two batched products and a softmax take half the time of
``scaled_dot_product_attention``, and gathering each head's vectors costs no more than whole rows.
The core computes in fp32 even if the model is in bf16: batched products in bf16 are compiled again
for each new shape.

Legend: T packed rows, P padded places, B sentences of a group, L places of a sentence, H heads,
K width of a head, N parts of a row: queries, keys, values.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt_cli.model.attention_layout import AttentionLayout, Group, HeadRows
from nmt_cli.model.attention_window import EVERYTHING, THE_PAST, Window, distances

MAX_KEYS = 128  # per sentence; the weights kept for the backward pass grow with its square
VECTOR_REGISTER = 16  # fp32 numbers; torch's softmax is ten times slower on shorter rows


class _HeadLayout(NamedTuple):
    """The indices of the heads' vectors of one attention."""

    groups: tuple[Group, ...]
    num_heads: int
    window: Window
    inputs: tuple[HeadRows, ...]  # for one tensor or two
    output: HeadRows


def attend_packed(
    layout: AttentionLayout, num_heads: int, window: Window, *packed: Tensor
) -> Tensor:
    """Return softmax(QK^T / sqrt(K)) V of every head as packed rows [T, HK].

    The rows come as one tensor [T, 3HK] of queries, keys and values, or as two: queries [T, HK],
    and keys and values [S, 2HK].
    """
    if len(packed) == 1:
        inputs: tuple[HeadRows, ...] = (layout.head_rows(3, num_heads),)
    else:
        inputs = (layout.head_rows(1, num_heads), layout.head_rows(2, num_heads, of_keys=True))
    output = layout.head_rows(1, num_heads)
    heads = _HeadLayout(layout.padded.groups, num_heads, window, inputs, output)
    with torch.autocast("cpu", enabled=False):
        return _PackedAttention.apply(heads, *packed)  # type: ignore[no-untyped-call]


class _PackedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, layout: _HeadLayout, *packed: Tensor) -> Tensor:  # type: ignore[no-untyped-def]  # noqa: ANN001
        dtype = packed[0].dtype
        padded = [
            rows.to_padded(tensor).to(torch.promote_types(dtype, torch.float32))
            for rows, tensor in zip(layout.inputs, packed, strict=True)
        ]
        attended = padded[0].new_empty(len(layout.output.vectors), padded[0].shape[1])
        kept_weights = []
        for group, queries, keys, values, output in _groups(layout, *padded, attended):
            scores = torch.baddbmm(
                _mask(group, layout, queries), queries, keys.mT, alpha=keys.shape[2] ** -0.5
            )
            weights = _softmax(scores)
            torch.bmm(weights, values, out=output)
            kept_weights.append(weights)
        ctx.layout = layout
        ctx.save_for_backward(*padded, *kept_weights)
        return layout.output.to_packed(attended.to(dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]  # noqa: ANN001
        layout: _HeadLayout = ctx.layout
        padded = ctx.saved_tensors[: len(layout.inputs)]
        kept_weights = ctx.saved_tensors[len(layout.inputs) :]
        output_gradient = layout.output.to_padded(gradient)
        output_gradient.index_fill_(0, layout.output.holes, 0.0)
        output_gradient = output_gradient.to(padded[0].dtype)
        gradients = [torch.empty_like(vectors) for vectors in padded]
        for weights, inputs, outputs in zip(
            kept_weights,
            _groups(layout, *padded, output_gradient),
            _groups(layout, *gradients, output_gradient),
            strict=True,
        ):
            _, queries, keys, values, output = inputs
            _, queries_gradient, keys_gradient, values_gradient, _ = outputs
            torch.bmm(weights.mT, output, out=values_gradient)
            scores_gradient = _softmax_gradient(torch.bmm(output, values.mT), weights)
            scores_gradient.mul_(keys.shape[2] ** -0.5)
            torch.bmm(scores_gradient, keys, out=queries_gradient)
            torch.bmm(scores_gradient.mT, queries, out=keys_gradient)
        moved = (
            rows.to_packed(vectors.to(gradient.dtype)).index_fill_(0, rows.spare, 0.0)
            for rows, vectors in zip(layout.inputs, gradients, strict=True)
        )
        return None, *moved


def _groups(
    layout: _HeadLayout, *padded: Tensor
) -> Iterator[tuple[Group, Tensor, Tensor, Tensor, Tensor]]:
    """Yield each group with views of its queries, keys, values and output [B*H, L, K]."""
    sides = (*layout.inputs, layout.output)
    queries, keys, values, output = (
        part
        for vectors, side in zip(padded, sides, strict=True)
        for part in vectors.view(side.num_parts, -1, vectors.shape[1]).unbind()
    )
    query_place = key_place = 0
    for group in layout.groups:
        num_sentences = group.num_sentences * layout.num_heads
        num_queries = num_sentences * group.query_length
        num_keys = num_sentences * group.key_length
        of_queries = slice(query_place, query_place + num_queries)
        of_keys = slice(key_place, key_place + num_keys)
        query_place, key_place = of_queries.stop, of_keys.stop
        yield (
            group,
            queries[of_queries].unflatten(0, (num_sentences, -1)),
            keys[of_keys].unflatten(0, (num_sentences, -1)),
            values[of_keys].unflatten(0, (num_sentences, -1)),
            output[of_queries].unflatten(0, (num_sentences, -1)),
        )


def _mask(group: Group, layout: _HeadLayout, like: Tensor) -> Tensor:
    """Return the mask to add to a group's scores, one for all sentences or one for each."""
    if layout.window == THE_PAST:  # holes come after the sentence, so the causal mask hides them
        length = group.query_length
        return torch.full((1, length, length), -torch.inf, dtype=like.dtype).triu_(1)
    keep = group.keep
    if layout.window != EVERYTHING:
        places = distances(group.query_length, group.key_length, like.device)
        # A row of a sentence reaches holes only if it reaches rows behind it.
        keep = layout.window.reaches_real(places, keep if layout.window.ahead else None)
    if keep is None:
        return like.new_zeros(1, 1, 1)
    mask = torch.zeros_like(keep, dtype=like.dtype).masked_fill_(~keep, -torch.inf)
    if mask.dim() == 2:
        return mask[None]
    return mask.expand(-1, layout.num_heads, -1, -1).flatten(0, 1)  # B*H 1 L, or B*H L L


def _softmax(scores: Tensor) -> Tensor:
    if scores.shape[2] >= VECTOR_REGISTER:
        return scores.softmax(2)
    exponentials = scores.sub_(scores.amax(2, keepdim=True)).exp_()
    return exponentials.div_(exponentials.sum(2, keepdim=True))


def _softmax_gradient(gradient: Tensor, softmax: Tensor) -> Tensor:
    if softmax.shape[2] >= VECTOR_REGISTER:
        return torch._softmax_backward_data(gradient, softmax, 2, softmax.dtype)
    gradient = gradient.mul_(softmax)
    return gradient.addcmul_(softmax, gradient.sum(2, keepdim=True), value=-1.0)
