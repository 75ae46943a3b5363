"""The best entries of wide rows: exact, in blocks, and the lowest index first among equals.

Legend: R rows, V vocabulary, N blocks, W width of a block, K entries asked for.
"""

from typing import NamedTuple

import torch
from torch import Tensor

BLOCK = 64  # W
# Rows whose exponentials fit the cache are summed together; a GPU takes as many as it can.
EXPONENTIALS_AT_ONCE = {"cpu": 1 << 18, "cuda": 1 << 27}
LOW_BITS = (1 << 32) - 1


class Best(NamedTuple):
    """The best entries of each row, best first."""

    values: Tensor  # R K, fp32
    indices: Tensor  # R K, int64


def top_k(rows: Tensor, k: int) -> Best:
    """Return the ``k`` largest entries of each row [R, V]; of equals those with lower indices.

    ``torch.topk`` over a whole vocabulary is slow and leaves open which of equals it takes, which
    could then depend on the other rows. The k largest entries lie in the k blocks with the largest
    maxima (on ties, the first such blocks), so that only these need to be looked at.
    """
    num_entries = rows.shape[1]
    k = min(k, num_entries)
    num_blocks = -(-num_entries // BLOCK)
    if num_blocks <= 2 * k:
        return _top_k_of(rows.float(), torch.arange(num_entries, device=rows.device), k)
    whole = num_entries // BLOCK * BLOCK
    maxima = rows[:, :whole].view(len(rows), -1, BLOCK).amax(dim=2)  # R N
    if whole < num_entries:
        maxima = torch.cat([maxima, rows[:, whole:].amax(dim=1, keepdim=True)], dim=1)
    blocks = _top_k_of(maxima.float(), torch.arange(num_blocks, device=rows.device), k).indices
    inside = torch.arange(BLOCK, device=rows.device)
    indices = (blocks[:, :, None] * BLOCK + inside).flatten(1)  # R K*W
    beyond = indices >= num_entries  # the last block may be shorter
    values = rows.gather(1, indices.clamp(max=num_entries - 1)).float()
    return _top_k_of(values.masked_fill_(beyond, -torch.inf), indices, k)


def log_normalizers(logits: Tensor) -> Tensor:
    """Return log(sum(exp(row))) [R] in fp32, without a second tensor of the logits' size."""
    at_once = EXPONENTIALS_AT_ONCE.get(logits.device.type, EXPONENTIALS_AT_ONCE["cpu"])
    chunks = torch.split(logits, max(1, at_once // logits.shape[1]))
    return torch.cat([chunk.float().logsumexp(dim=1) for chunk in chunks])


def _top_k_of(values: Tensor, indices: Tensor, k: int) -> Best:
    """Return the best of ``values`` (fp32), which stand for ``indices`` of the whole row.

    Both are packed into one integer, the value's order above and the index, counted backwards,
    below: no two are equal, so there is only one answer.
    """
    bits = values.contiguous().view(torch.int32)
    order = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # ordered as the floats are; NaN above all
    keys = (order.long() << 32) | (LOW_BITS - indices)
    best = keys.topk(k, dim=1).values
    order = (best >> 32).int()
    return Best(
        (order ^ ((order >> 31) & 0x7FFFFFFF)).view(torch.float32), LOW_BITS - (best & LOW_BITS)
    )
