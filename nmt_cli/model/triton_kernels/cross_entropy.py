"""Softmax, its gradient and the losses of a chunk of logits, in one kernel (section 5.4).

Legend: C rows of the chunk, V vocabulary.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

COLUMNS = 8192  # of a row that a program holds at a time


def losses_in_place(logits: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Replace ``logits`` [C, V] by softmax - (1 - e) one-hot, with e the ``smoothing``.

    Returns the negative log-likelihood of each of ``targets`` [C], in nats, and its logit, both in
    fp32. With NaN in its row, a nll is NaN.
    """
    num_rows, width = logits.shape
    nll, target_logits = logits.new_empty(2, num_rows, dtype=torch.float32)
    columns = min(COLUMNS, triton.next_power_of_2(width))
    # Triton loads 16 bytes at a time where it can see that rows begin at multiples of 16 bytes.
    aligned = 8 if width % 8 == 0 and logits.stride(0) % 8 == 0 else 1
    _softmax_and_losses[num_rows,](
        *(logits, targets, nll, target_logits),
        *(width // aligned, logits.stride(0) // aligned, smoothing),
        COLUMNS=columns,
        ALIGNED=aligned,
        num_warps=max(1, min(16, columns // 256)),
    )
    return nll, target_logits


@triton.jit
def _softmax_and_losses(
    logits, targets, nll, target_logits,
    width, stride, smoothing,
    COLUMNS: tl.constexpr, ALIGNED: tl.constexpr,
):  # fmt: skip
    """Write a row: exp(z - log(sum(exp(z)))) in place, log(sum(exp(z))) - z_y and z_y.

    ``width`` and ``stride`` are in units of ``ALIGNED`` numbers.
    """
    row = tl.program_id(0)
    width *= ALIGNED
    logits += row.to(tl.int64) * stride * ALIGNED
    inner = tl.arange(0, COLUMNS)
    target = tl.load(targets + row)
    chosen = tl.load(logits + target).to(tl.float32)
    top = float("-inf")
    total = tl.zeros([COLUMNS], tl.float32)
    for first in range(0, width, COLUMNS):
        column = first + inner
        z = tl.load(logits + column, mask=column < width, other=float("-inf")).to(tl.float32)
        new_top = tl.maximum(top, tl.max(z, 0))
        total = total * tl.exp(top - new_top) + tl.exp(z - new_top)
        top = new_top
    log_sum = top + tl.log(tl.sum(total, 0))
    tl.store(nll + row, log_sum - chosen)
    tl.store(target_logits + row, chosen)
    tl.debug_barrier()  # every thread has read the logit of the target
    for first in range(0, width, COLUMNS):
        column = first + inner
        z = tl.load(logits + column, mask=column < width, other=float("-inf")).to(tl.float32)
        gradient = tl.exp(z - log_sum) - tl.where(column == target, 1.0 - smoothing, 0.0)
        tl.store(logits + column, gradient.to(logits.dtype.element_ty), mask=column < width)
