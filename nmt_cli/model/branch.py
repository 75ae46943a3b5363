"""What a sub-layer adds to its rows, and products that add gradients to those of the sum.

Autograd adds the gradient of a sub-layer's rows by the sum to that by its first product: a kernel
that reads both and writes a third. Here the product itself adds them.

Legend: T rows, D width of the rows, O width of the output.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


def as_in_products(rows: Tensor) -> Tensor:
    """Return ``rows`` in the type in which they are multiplied."""
    kind = rows.device.type
    return rows.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else rows


class Branch(NamedTuple):
    """The output of a sub-layer, whose gradients a kernel for the residual sum computes."""

    output: Tensor  # T D
    rows: Tensor  # T D, those that entered the sub-layer, as its first product returned them
    bias: Tensor | None = None  # D, a part of the output without a gradient, which the sum gives it


def linear_and_rows(rows: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return rows weight^T + bias [T, O], and ``rows`` [T, D], in the type of products.

    The product adds its gradient to the one that comes back to the second output, in its memory. So
    that must be a tensor of its own, as the kernel of a residual sum makes it.
    """
    rows = as_in_products(rows)
    return _LinearAndRows.apply(rows, weight.to(rows.dtype), bias)  # type: ignore[no-untyped-call]


class _LinearAndRows(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(rows, weight)
        return F.linear(rows, weight, bias), rows.view_as(rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        of_output, of_rows = gradients
        rows, weight = ctx.saved_tensors
        of_bias = of_output.sum(0) if ctx.needs_input_grad[2] else None
        return added_product(of_rows, of_output, weight), of_output.T @ rows, of_bias


def added_product(total: Tensor | None, left: Tensor, right: Tensor) -> Tensor:
    """Return ``total`` plus left @ right, in its memory; only the product if it is None."""
    return left @ right if total is None else total.addmm_(left, right)
