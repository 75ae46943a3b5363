"""The k largest entries of wide rows, in torch: exact, equal entries by lowest index.

Legend: R rows, V vocabulary, N blocks, C entries asked for.
"""

from typing import NamedTuple

import torch
from torch import Tensor

BLOCK = 64
EXPONENTIALS_AT_ONCE = 1 << 27  # to bound their memory
LOW_BITS = (1 << 32) - 1


class Best(NamedTuple):
    """The best entries of each row, best first."""

    values: Tensor  # R C, fp32
    indices: Tensor  # R C, int64


def top_k(rows: Tensor, k: int) -> Best:
    """Return the ``k`` largest entries of each row [R, V]; among equal ones, lower indices first.

    ``torch.topk`` over many wide rows is slow, and its choice among equal entries is undefined, so
    it could depend on the other rows. The k best entries are in the k blocks with the best maxima,
    where lower indices decide between equal ones, too.

    No shape depends on the entries, so that it never waits for a GPU, and a CUDA graph can repeat
    it. Entries of -inf are found like any other.
    """
    num_entries = rows.shape[1]
    k = min(k, num_entries)
    if num_entries <= 2 * k * BLOCK:
        return best_of_all(rows.float(), k)
    begin = best_of_all(_maxima_of_blocks(rows), k).indices[:, :, None] * BLOCK  # R k 1
    inside = torch.arange(BLOCK, device=rows.device)
    # The last window overlaps the one before, so that it is as wide.
    places = begin.clamp(max=num_entries - BLOCK) + inside  # R k BLOCK
    is_own = (places >= begin).flatten(1)
    places = places.flatten(1)
    packed = _packed(rows.gather(1, places).float(), places)
    return _unpacked(packed.masked_fill_(~is_own, torch.iinfo(torch.int64).min), k)


def best_of_all(values: Tensor, k: int) -> Best:
    """Return the ``k`` largest of few fp32 ``values`` [R, V]; all shapes are fixed."""
    return _unpacked(_packed(values, torch.arange(values.shape[1], device=values.device)), k)


def _maxima_of_blocks(rows: Tensor) -> Tensor:
    """Return the largest entry [R, N] of each BLOCK entries, fp32; the last may be shorter."""
    whole = rows.shape[1] // BLOCK * BLOCK
    maxima = rows[:, :whole].view(len(rows), -1, BLOCK).amax(dim=2)
    if whole == rows.shape[1]:
        return maxima.float()
    return torch.cat([maxima, rows[:, whole:].amax(dim=1, keepdim=True)], dim=1).float()


def log_normalizers(logits: Tensor) -> Tensor:
    """Return log(sum(exp(row))) [R] of ``logits`` in fp32, in fixed shapes.

    It is the largest logit minus its log-probability: ``log_softmax`` is one pass over memory,
    ``logsumexp`` five, on a CPU.
    """
    found = []
    for chunk in torch.split(logits, rows_at_once(logits)):
        rows = chunk.float()
        found.append(rows.amax(dim=1) - rows.log_softmax(dim=1).amax(dim=1))
    return torch.cat(found)


def rows_at_once(logits: Tensor) -> int:
    """Return of how many rows [R, V] exponentials are best computed together."""
    return max(1, EXPONENTIALS_AT_ONCE // logits.shape[1])


def _packed(values: Tensor, indices: Tensor) -> Tensor:
    """Return each value (fp32) and its index in one integer; of two, the better one is larger.

    The high bits order the values, the low bits hold the index counted backwards.
    """
    return (_keys(values).long() << 32) | (LOW_BITS - indices)


def _unpacked(packed: Tensor, k: int) -> Best:
    """Return the ``k`` largest of each row of packed entries; no two are equal."""
    best = packed.topk(k, dim=1).values
    return Best(_values((best >> 32).int()), LOW_BITS - (best & LOW_BITS))


def _keys(values: Tensor) -> Tensor:
    """Return integers (int32) in the order of ``values`` (fp32), with NaN the largest."""
    bits = values.contiguous().view(torch.int32)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def _values(keys: Tensor) -> Tensor:
    """Return the values of ``_keys``."""
    return (keys ^ ((keys >> 31) & 0x7FFFFFFF)).view(torch.float32)
