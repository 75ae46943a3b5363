"""Dropout, residual sum and LayerNorm as one kernel, forward and backward (sections 3.1 and 5.4).

Legend: T rows, D d_model, P programs of the backward pass.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from nmt_cli.model.dropout import KernelDropout
from nmt_cli.model.triton_kernels.dropout import kept_in_rows
from nmt_cli.model.triton_kernels.sums import summed

NUMBERS = 2048  # of the rows that a program holds at a time
PROGRAMS = 512  # of the backward pass; fixed, so that sums do not depend on the GPU


class Norm(NamedTuple):
    """A LayerNorm: its weight and bias [D], and what is added to the variance."""

    weight: Tensor
    bias: Tensor
    epsilon: float


def add_dropout_norm(
    rows: Tensor,
    branch: Tensor,
    drawn: KernelDropout,
    norm: Norm | None,
    branch_bias: Tensor | None = None,
) -> Tensor:
    """Return ``rows`` plus ``branch`` with dropout [T, D], normalized if there is a ``norm``.

    All is computed in fp32. The result has the type of ``branch`` if it is normalized, else that of
    the sum. D must be a multiple of 4. Beside a norm, ``branch_bias`` [D] is a part of ``branch``
    that gets its gradient here, as the sum over rows.
    """
    weight, bias, epsilon = norm or (None, None, 0.0)
    rows, branch = rows.contiguous(), branch.contiguous()
    return _AddDropoutNorm.apply(rows, branch, weight, bias, branch_bias, epsilon, drawn)


class _AddDropoutNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        branch: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        _: Tensor | None,
        epsilon: float,
        drawn: KernelDropout,
    ) -> Tensor:
        wide = torch.promote_types(rows.dtype, branch.dtype)
        result = torch.empty_like(branch, dtype=wide if weight is None else branch.dtype)
        moments = rows.new_empty(2, len(rows), dtype=torch.float32)
        sizes = _sizes(rows, drawn, has_norm=weight is not None)
        _forward[triton.cdiv(len(rows), sizes["ROWS"]),](
            *(rows, branch, weight, bias, result, moments, len(rows), epsilon, *drawn), **sizes
        )
        ctx.drawn = drawn
        ctx.save_for_backward(rows, branch, weight, moments)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        rows, branch, weight, moments = ctx.saved_tensors
        of_rows, of_branch = torch.empty_like(rows), torch.empty_like(branch)
        sizes = _sizes(rows, ctx.drawn, has_norm=weight is not None)
        programs = min(PROGRAMS, triton.cdiv(len(rows), sizes["ROWS"]))
        sums = rows.new_empty(3, programs, rows.shape[1], dtype=torch.float32)
        _backward[programs,](
            *(gradients[0].contiguous(), rows, branch, weight, moments, of_rows, of_branch, sums),
            *(len(rows), *ctx.drawn),
            **sizes,
        )
        if weight is None:
            return of_rows, of_branch, None, None, None, None, None
        of_vectors = summed(sums, weight.dtype)
        others = of_vectors if ctx.needs_input_grad[4] else (*of_vectors[:2], None)
        return of_rows, of_branch, *others, None, None


def _sizes(rows: Tensor, drawn: KernelDropout, *, has_norm: bool) -> dict[str, Any]:
    """Return the constants that the kernels are compiled for."""
    width = rows.shape[1]
    tile = max(4, triton.next_power_of_2(width))
    return {
        "WIDTH": width,
        "TILE": tile,
        "ROWS": max(1, NUMBERS // tile),
        "HAS_NORM": has_norm,
        "HAS_DROPOUT": drawn.rate > 0.0,
        "num_warps": 4 if tile <= NUMBERS else 8,
    }


@triton.jit
def _load(at, row, num_rows, WIDTH: tl.constexpr, TILE: tl.constexpr):
    """Return rows [ROWS, TILE] in fp32, and their places and which are there."""
    column = tl.arange(0, TILE)[None, :]
    place = row.to(tl.int64)[:, None] * WIDTH + column
    is_there = (row < num_rows)[:, None] & (column < WIDTH)
    return tl.load(at + place, mask=is_there, other=0.0).to(tl.float32), place, is_there


@triton.jit
def _sum(rows, branch, row, num_rows, rate, seed, number, WIDTH, TILE, HAS_DROPOUT: tl.constexpr):
    """Return rows + Dropout(branch) and which elements are kept, their places, which are there."""
    x, place, is_there = _load(rows, row, num_rows, WIDTH, TILE)
    y, _, _ = _load(branch, row, num_rows, WIDTH, TILE)
    kept = is_there
    if HAS_DROPOUT:
        kept = kept_in_rows(seed, number, row, TILE, rate)
        y = tl.where(kept, y / (1.0 - rate), 0.0)
    return x + y, kept, place, is_there


@triton.jit(do_not_specialize=["num_rows", "number"])
def _forward(
    rows, branch, weight, bias, result, moments,
    num_rows, epsilon, rate, seed, number,
    WIDTH: tl.constexpr, TILE: tl.constexpr, ROWS: tl.constexpr,
    HAS_NORM: tl.constexpr, HAS_DROPOUT: tl.constexpr,
):  # fmt: skip
    """Write the normalized sum of each row, its mean and the inverse of its standard deviation."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    x, _, place, is_there = _sum(
        rows, branch, row, num_rows, rate, seed, number, WIDTH, TILE, HAS_DROPOUT
    )
    if HAS_NORM:
        mean = tl.sum(x, 1) / WIDTH
        x = tl.where(is_there, x - mean[:, None], 0.0)
        inverse = tl.rsqrt(tl.sum(x * x, 1) / WIDTH + epsilon)
        column = tl.arange(0, TILE)
        scale = tl.load(weight + column, mask=column < WIDTH, other=0.0).to(tl.float32)
        shift = tl.load(bias + column, mask=column < WIDTH, other=0.0).to(tl.float32)
        x = x * inverse[:, None] * scale[None, :] + shift[None, :]
        tl.store(moments + row, mean, mask=row < num_rows)
        tl.store(moments + num_rows + row, inverse, mask=row < num_rows)
    tl.store(result + place, x.to(result.dtype.element_ty), mask=is_there)


@triton.jit(do_not_specialize=["num_rows", "number"])
def _backward(
    of_result, rows, branch, weight, moments, of_rows, of_branch, sums,
    num_rows, rate, seed, number,
    WIDTH: tl.constexpr, TILE: tl.constexpr, ROWS: tl.constexpr,
    HAS_NORM: tl.constexpr, HAS_DROPOUT: tl.constexpr,
):  # fmt: skip
    """Write the gradients of rows and branch, and this program's sums of those of the norm.

    With n = (x - mean) / deviation and g = dy * weight, dx = (g - mean(g) - n mean(g n)) /
    deviation. The sums over rows are sum(dy n) for the weight, sum(dy) for the bias, and that of
    the gradient of the branch for its bias.
    """
    column = tl.arange(0, TILE)
    if HAS_NORM:
        scale = tl.load(weight + column, mask=column < WIDTH, other=0.0).to(tl.float32)
        of_weight = tl.zeros([TILE], tl.float32)
        of_bias = tl.zeros([TILE], tl.float32)
        of_branch_bias = tl.zeros([TILE], tl.float32)
    for first in range(tl.program_id(0) * ROWS, num_rows, tl.num_programs(0) * ROWS):
        row = first + tl.arange(0, ROWS)
        gradient, _, _ = _load(of_result, row, num_rows, WIDTH, TILE)
        x, kept, place, is_there = _sum(
            rows, branch, row, num_rows, rate, seed, number, WIDTH, TILE, HAS_DROPOUT
        )
        if HAS_NORM:
            mean = tl.load(moments + row, mask=row < num_rows, other=0.0)
            inverse = tl.load(moments + num_rows + row, mask=row < num_rows, other=0.0)
            x = tl.where(is_there, (x - mean[:, None]) * inverse[:, None], 0.0)
            of_weight += tl.sum(gradient * x, 0)
            of_bias += tl.sum(gradient, 0)
            gradient *= scale[None, :]
            shared = tl.sum(gradient, 1) / WIDTH
            along = tl.sum(gradient * x, 1) / WIDTH
            gradient = (gradient - shared[:, None] - x * along[:, None]) * inverse[:, None]
        tl.store(of_rows + place, gradient.to(of_rows.dtype.element_ty), mask=is_there)
        if HAS_DROPOUT:
            gradient = tl.where(kept, gradient / (1.0 - rate), 0.0)
        if HAS_NORM:
            of_branch_bias += tl.sum(gradient, 0)
        tl.store(of_branch + place, gradient.to(of_branch.dtype.element_ty), mask=is_there)
    if HAS_NORM:
        place = sums + tl.program_id(0) * WIDTH + column
        tl.store(place, of_weight, mask=column < WIDTH)
        next_sum = tl.num_programs(0) * WIDTH
        tl.store(place + next_sum, of_bias, mask=column < WIDTH)
        tl.store(place + 2 * next_sum, of_branch_bias, mask=column < WIDTH)
