"""Rounding to int8 in training: quantization-aware training (Jacob et al. 2018).

All factors of products by weights, and embeddings, are rounded as the library for CPUs and models
stored in int8 round them: each row of activations, and the weights of each output, to integers of
-127 to 127 times a scale of its own, which maps the largest of them to 127. So none is clipped, and
the gradient passes the rounding as if it were not there (straight-through, Bengio et al. 2013).
"""

import functools
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.model.embeddings import Embedding
from nmt_cli.model.stored_weights import LARGEST, SMALLEST_SCALE
from nmt_cli.model.transformer import Transformer


class _Rounding(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, rows: Tensor) -> Tensor:
        wide = rows.to(torch.promote_types(rows.dtype, torch.float32))
        largest = wide.abs().amax(-1, keepdim=True)
        scales = largest.clamp(min=SMALLEST_SCALE) / LARGEST
        return (wide * scales.reciprocal()).round_().mul_(scales).to(rows.dtype)

    @staticmethod
    def backward(_: Any, *gradients: Any) -> Any:
        return gradients[0]


def rounded(rows: Tensor) -> Tensor:
    """Return ``rows`` [.., I], each rounded to int8 with a scale of its own, in their type.

    The gradient is that of ``rows`` themselves.
    """
    return _Rounding.apply(rows)  # type: ignore[no-untyped-call]


def round_to_int8(model: Transformer) -> None:
    """Let ``model`` round from now on, in training and evaluation."""
    model.rounded = rounded
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.forward = functools.partial(_linear, module)  # type: ignore[method-assign]
        elif isinstance(module, Embedding):
            module.rounded = rounded


def _linear(linear: nn.Linear, rows: Tensor) -> Tensor:
    return F.linear(rounded(rows), rounded(linear.weight), linear.bias)
