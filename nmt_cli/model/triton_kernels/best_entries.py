"""The best entries of rows of logits and the rows' normalizers, in one reading.

Legend: R rows, V vocabulary, C entries of a row.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

COLUMNS = 2048  # of a row that a program holds at a time
LOWEST = tl.constexpr(-(1 << 63))
HIGHEST = tl.constexpr((1 << 63) - 1)
LOW_BITS = tl.constexpr((1 << 32) - 1)


def best_entries(logits: Tensor, number: int, banned: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the largest entries [R, C] of each row [R, V], their places, and normalizers [R].

    C is ``number``, or V if that is less. Of equal entries, those at lower places come first. The
    entry at ``banned`` counts as -inf; -1: none does. A normalizer is log(sum(exp(row))) with all
    entries, in fp32, and NaN for a row with NaN.
    """
    num_rows, width = logits.shape
    number = min(number, width)
    values = logits.new_empty(num_rows, number, dtype=torch.float32)
    places = logits.new_empty(num_rows, number, dtype=torch.int64)
    normalizers = logits.new_empty(num_rows, dtype=torch.float32)
    # Triton loads 16 bytes at a time where it can see that rows begin at multiples of 16 bytes.
    aligned = 4 if width % 4 == 0 and logits.stride(0) % 4 == 0 else 1
    _best_entries[num_rows,](
        *(logits, values, places, normalizers),
        *(width // aligned, logits.stride(0) // aligned, banned),
        NUMBER=number,
        KEPT=triton.next_power_of_2(number),
        COLUMNS=min(COLUMNS, triton.next_power_of_2(width)),
        ALIGNED=aligned,
    )
    return values, places, normalizers


@triton.jit(do_not_specialize=["banned"])
def _best_entries(
    logits, values, places, normalizers,
    width, stride, banned,
    NUMBER: tl.constexpr, KEPT: tl.constexpr, COLUMNS: tl.constexpr, ALIGNED: tl.constexpr,
):  # fmt: skip
    """Keep the best entries so far, each as an integer: a key of its value, and its place.

    The high bits order the values, the low bits hold the place counted backwards. ``width`` and
    ``stride`` are in units of ``ALIGNED`` numbers.
    """
    width *= ALIGNED
    stride *= ALIGNED
    row, rank = tl.program_id(0).to(tl.int64), tl.arange(0, KEPT).to(tl.int64)
    best = tl.where(rank < NUMBER, LOWEST + rank, HIGHEST)
    top = float("-inf")
    total = tl.zeros([COLUMNS], tl.float32)
    for first in range(0, width, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        is_there = column < width
        at = logits + row * stride + column
        z = tl.load(at, mask=is_there, other=float("-inf")).to(tl.float32)
        new_top = tl.maximum(top, tl.max(z, 0))
        shift = tl.where(new_top == float("-inf"), 0.0, new_top)
        total = total * tl.exp(top - shift) + tl.exp(z - shift)
        top = new_top
        bits = tl.where(column == banned, float("-inf"), z).to(tl.int32, bitcast=True)
        key = bits ^ ((bits >> 31) & 0x7FFFFFFF)
        packed = (key.to(tl.int64) << 32) | (column.to(tl.int64) ^ LOW_BITS)
        packed = tl.where(is_there, packed, LOWEST)
        found, least = tl.max(packed, 0), tl.min(best, 0)
        while found > least:
            best = tl.where(best == least, found, best)
            packed = tl.where(packed == found, LOWEST, packed)
            found, least = tl.max(packed, 0), tl.min(best, 0)
    tl.store(normalizers + row, top + tl.log(tl.sum(total, 0)))
    is_kept = rank < NUMBER
    order = tl.sum((is_kept[None, :] & (best[None, :] > best[:, None])).to(tl.int32), 1)
    at = row * NUMBER + order
    keys = (best >> 32).to(tl.int32)
    found_values = (keys ^ ((keys >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
    tl.store(values + at, found_values, mask=is_kept)
    tl.store(places + at, (best & LOW_BITS) ^ LOW_BITS, mask=is_kept)
