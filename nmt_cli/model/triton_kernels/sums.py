"""Sums over rows, the second half of those that several programs begin.

Legend: N sums, P programs, D columns.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS, COLUMNS = 128, 64  # of a tile


def summed(parts: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the sums [N, D] of ``parts`` [N, P, D] in fp32, always added in the same order."""
    number, programs, width = parts.shape
    found = parts.new_empty(number, width, dtype=dtype)
    _sum[number, triton.cdiv(width, COLUMNS)](parts, found, programs, width, ROWS, COLUMNS)
    return found


@triton.jit(do_not_specialize=["programs"])
def _sum(parts, found, programs, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros([COLUMNS], tl.float32)
    for first in range(0, programs, ROWS):
        row = first + tl.arange(0, ROWS)
        place = (tl.program_id(0) * programs + row)[:, None] * width + column[None, :]
        is_there = (row < programs)[:, None] & (column < width)[None, :]
        total += tl.sum(tl.load(parts + place, mask=is_there, other=0.0), 0)
    place = found + tl.program_id(0) * width + column
    tl.store(place, total.to(found.dtype.element_ty), mask=column < width)
