"""max(0, x W^T + b), whose backward pass is one kernel beside the products (section 3.3).

Legend: T rows, D d_model, F d_ff, P programs of the backward pass.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from nmt_cli.model.branch import added_product
from nmt_cli.model.triton_kernels.sums import summed

ROWS, COLUMNS = 64, 64  # of a tile
PROGRAMS = 64  # that share the rows; fixed, so that sums do not depend on the GPU


def linear_relu(rows: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Return max(0, rows weight^T + bias) [T, F] in the type of ``rows``, and ``rows``.

    The product adds its gradient to the one that comes back to the second output, in its memory.
    """
    return _LinearReLU.apply(rows, weight.to(rows.dtype), bias.to(rows.dtype))


class _LinearReLU(torch.autograd.Function):
    """The forward pass is a product that ends with bias and maximum, by cuBLAS.

    The backward pass reads the result and its gradient once: for the gradient behind the maximum,
    and for its sum over rows, which is that of the bias.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        result = torch._addmm_activation(bias, rows, weight.T)
        ctx.save_for_backward(rows, weight, result)
        return result, rows.view_as(rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, Tensor, Tensor]:
        rows, weight, result = ctx.saved_tensors
        of_result, of_rows = gradients
        num_rows, width = result.shape
        inner = torch.empty_like(result)
        programs = min(PROGRAMS, triton.cdiv(num_rows, ROWS))
        sums = result.new_empty(1, programs, width, dtype=torch.float32)
        _backward[programs, triton.cdiv(width, COLUMNS)](
            *(of_result.contiguous(), result, inner, sums, num_rows, width),
            ROWS=ROWS,
            COLUMNS=COLUMNS,
        )
        of_bias = summed(sums, result.dtype)[0]
        return added_product(of_rows, inner, weight), inner.T @ rows, of_bias


@triton.jit(do_not_specialize=["num_rows"])
def _backward(
    of_result, result, inner, sums, num_rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Write the gradient where the result is above 0, else 0, and its sums over rows."""
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros([COLUMNS], tl.float32)
    for first in range(tl.program_id(0) * ROWS, num_rows, tl.num_programs(0) * ROWS):
        row = first + tl.arange(0, ROWS)
        place = row.to(tl.int64)[:, None] * width + column[None, :]
        is_there = (row < num_rows)[:, None] & (column < width)[None, :]
        is_above = tl.load(result + place, mask=is_there, other=0.0) > 0.0
        gradient = tl.load(of_result + place, mask=is_there, other=0.0).to(tl.float32)
        gradient = tl.where(is_above, gradient, 0.0)
        tl.store(inner + place, gradient.to(inner.dtype.element_ty), mask=is_there)
        total += tl.sum(gradient, 0)
    tl.store(sums + tl.program_id(0) * width + column, total, mask=column < width)
