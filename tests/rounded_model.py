"""Models as the library computes them in lower precision, in torch: what its results must be."""

import copy
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from nmt_cli.model.transformer import Transformer

LARGEST = 127


def rounded_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scale [R, 1] of each of ``rows`` [R, I], and the rows over it as int8."""
    scales = rows.abs().amax(dim=1, keepdim=True).clamp(min=1e-30) / LARGEST
    return scales, (rows * scales.reciprocal()).round().to(torch.int8)


class Int8Linear(nn.Module):
    """x W^T + b; the rows of x and of W are integers times a scale each, and sums are exact."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        scales, self.integers = rounded_rows(weight.detach())
        self.scales, self.bias = scales.squeeze(1), bias

    def forward(self, rows: Tensor) -> Tensor:
        scales, integers = rounded_rows(rows)
        sums = integers.double() @ self.integers.double().t()
        # Scaled in the order of the library: another one moves some later numbers over the border
        # between two integers.
        product = sums.float() * self.scales * scales
        # What is not a number has no integer.
        product[~rows.isfinite().all(dim=1)] = torch.nan
        return product if self.bias is None else product + self.bias


def at_precision(model: Transformer, precision: str) -> Any:
    """Return a copy of ``model``, which is in fp32."""
    copied = copy.deepcopy(model)
    if precision == "bf16":
        return copied.to(torch.bfloat16)
    if precision == "int8":
        for parent in list(copied.modules()):
            for name, child in list(parent.named_children()):
                if isinstance(child, nn.Linear):
                    setattr(parent, name, Int8Linear(child.weight, child.bias))
        copied.project = output_of(copied, precision).forward  # type: ignore[method-assign]
    return copied


def output_of(model: Transformer, precision: str) -> Any:
    """Return the product by the output matrix of a model at ``precision``."""
    if precision == "int8":
        return Int8Linear(model.output_weight, model.output_bias)
    return SimpleNamespace(weight=model.output_weight, bias=model.output_bias)
