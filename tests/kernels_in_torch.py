"""Stand-ins for our kernels in Triton, which compute and round alike in torch, on any device."""

import sys
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from nmt_cli.model.attention_window import distances

PACKAGE = "nmt_cli.model.triton_kernels"


class Heads(NamedTuple):
    number: int
    d_k: int
    d_v: int
    drawn: Any


class Norm(NamedTuple):
    weight: Tensor
    bias: Tensor
    epsilon: float


def kept_of(drawn, shape):
    """Return what dropout keeps of a shape: the same for the same seed and number."""
    seed = (int(drawn.seed) + drawn.number) % 2**63
    draws = torch.rand(shape, generator=torch.Generator().manual_seed(seed))
    return draws.to(drawn.seed.device) >= drawn.rate


class _Head(torch.autograd.Function):
    """Attention of a head; weights and gradients of scores are rounded before products."""

    @staticmethod
    def forward(ctx, queries, keys, values, reached, scale, dropout):
        scores = (queries.float() @ keys.float().mT * scale).masked_fill(~reached, -torch.inf)
        sums = scores.logsumexp(-1, keepdim=True)
        weights = ((scores - sums).exp() * dropout).to(values.dtype)
        output = (weights.float() @ values.float()).to(values.dtype)
        ctx.save_for_backward(queries, keys, values, reached, output, sums)
        ctx.scale, ctx.dropout = scale, dropout
        return output

    @staticmethod
    def backward(ctx, of_output):
        queries, keys, values, reached, output, sums = ctx.saved_tensors
        dtype, of_output = values.dtype, of_output.float()
        scores = queries.float() @ keys.float().mT * ctx.scale
        weights = (scores.masked_fill(~reached, -torch.inf) - sums).exp()
        mean = (of_output * output.float()).sum(-1, keepdim=True)
        of_weights = of_output @ values.float().mT * ctx.dropout
        of_scores = (weights * (of_weights - mean)).to(dtype).float() * ctx.scale
        left = (weights * ctx.dropout).to(dtype).float()
        gradients = (of_scores @ keys.float(), of_scores.mT @ queries.float(), left.mT @ of_output)
        return *(each.to(dtype) for each in gradients), None, None, None


def attend(layout, window, heads, first, keys_values=None):
    keys, values = heads.number * heads.d_k, heads.number * heads.d_v
    if keys_values is None:
        parts = first.split((keys, keys, values), dim=1)
    else:
        parts = first, *keys_values.split((keys, values), dim=1)
    sides = layout.query_sentences, layout.key_sentences, layout.key_sentences
    by_sentence = [
        rows.unflatten(1, (heads.number, -1)).transpose(0, 1)
        for rows, side in zip(parts, sides, strict=True)
    ]
    splits = [
        part.split(side.lengths, dim=1) for part, side in zip(by_sentence, sides, strict=True)
    ]
    kept = None
    if heads.drawn.rate > 0:
        longest = layout.key_sentences.longest
        kept = kept_of(heads.drawn, (heads.number, sides[0].num_tokens, longest))
        kept = kept.split(sides[0].lengths, dim=1)
    found = []
    for number, (q, k, v) in enumerate(zip(*splits, strict=True)):
        reached = window.reaches(distances(q.shape[1], k.shape[1], q.device))
        dropout: Any = 1.0
        if kept is not None:
            dropout = kept[number][:, :, : k.shape[1]] / (1 - heads.drawn.rate)
        with torch.autocast(q.device.type, enabled=False):
            attended = _Head.apply(q, k, v, reached, heads.d_k**-0.5, dropout)
        found.append(attended.transpose(0, 1).flatten(1))
    return torch.cat(found)


def add_dropout_norm(rows, branch, drawn, norm, branch_bias=None):
    if branch_bias is not None:
        branch = branch + (branch_bias - branch_bias.detach())
    wide = torch.promote_types(rows.dtype, branch.dtype)
    total = branch.float()
    if drawn.rate > 0:
        total = total * kept_of(drawn, branch.shape) / (1 - drawn.rate)
    total = rows.float() + total
    if norm is None:
        return total.to(wide)
    weight, bias, epsilon = norm
    with torch.autocast(rows.device.type, enabled=False):
        normed = F.layer_norm(total, weight.shape, weight.float(), bias.float(), epsilon)
    return normed.to(branch.dtype)


def linear_relu(rows, weight, bias):
    with torch.autocast(rows.device.type, enabled=False):
        return F.relu(F.linear(rows, weight.to(rows.dtype), bias.to(rows.dtype))), rows


def losses_in_place(logits, targets, smoothing):
    wide = logits.float()
    places = torch.arange(len(targets), device=logits.device), targets
    sums, chosen = wide.logsumexp(1, keepdim=True), wide[places]
    gradient = (wide - sums).exp()
    gradient[places] -= 1 - smoothing
    logits.copy_(gradient)
    return sums[:, 0] - chosen, chosen


KERNELS: dict[str, dict[str, Any]] = {
    "attention": {"attend": attend, "Heads": Heads},
    "residual": {"add_dropout_norm": add_dropout_norm, "Norm": Norm},
    "relu": {"linear_relu": linear_relu},
    "cross_entropy": {"losses_in_place": losses_in_place},
}


def bring(monkeypatch, **others):
    """Let models compute by these kernels, with ``others`` in place of some of them."""
    for name, functions in KERNELS.items():
        module: Any = ModuleType(name)
        for function, kernel in functions.items():
            setattr(module, function, others.get(function, kernel))
        monkeypatch.setitem(sys.modules, f"{PACKAGE}.{name}", module)
