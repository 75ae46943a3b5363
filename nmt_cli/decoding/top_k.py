"""The k largest entries of wide rows: exact, found in blocks, equal entries by lowest index.

Legend: R rows, V vocabulary, N blocks, W width of a block, K entries asked for.
"""

from typing import NamedTuple

import torch
from torch import Tensor

BLOCK = 64  # W
# Exponentials computed together: as many as fit a CPU's cache, or more on a GPU.
EXPONENTIALS_AT_ONCE = {"cpu": 1 << 18, "cuda": 1 << 27}
LOW_BITS = (1 << 32) - 1


class Best(NamedTuple):
    """The best entries of each row, best first."""

    values: Tensor  # R K, fp32
    indices: Tensor  # R K, int64


def top_k(rows: Tensor, k: int) -> Best:
    """Return the ``k`` largest entries of each row [R, V]; among equal ones, lower indices first.

    ``torch.topk`` over a whole vocabulary is slow, and its choice among equal entries is undefined,
    so it could depend on the other rows. The k largest entries are in the k blocks with the largest
    maxima (on ties, the first such blocks), so only these blocks are searched.
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


def sorted_entries(rows: Tensor) -> Tensor:
    """Return the entries of each row [R, V] in fp32, in the order of ``top_k``."""
    keys = ~_keys(rows.float())  # ascending
    if keys.device.type == "cpu":
        keys.numpy().sort(axis=1)  # many times faster than torch.sort
    else:
        keys = keys.sort(dim=1).values
    return _values(~keys)


def indices_at(rows: Tensor, ordered: Tensor, places: Tensor) -> Tensor:
    """Return the index in its row [R, V] of the entry at each of ``places`` [R].

    ``ordered`` are the ``sorted_entries`` of the rows.
    """
    wanted = _keys(ordered.gather(1, places[:, None]))
    places_among_equal = places - (_keys(ordered) > wanted).sum(dim=1)
    equal = _keys(rows.float()) == wanted  # R V
    counts = equal.sum(dim=1)
    indices = equal.nonzero()[:, 1]  # by row, then by index
    return indices[counts.cumsum(dim=0) - counts + places_among_equal]


def log_normalizers(logits: Tensor) -> Tensor:
    """Return log(sum(exp(row))) [R] in fp32, without a second tensor of the logits' size.

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
    at_once = EXPONENTIALS_AT_ONCE.get(logits.device.type, EXPONENTIALS_AT_ONCE["cpu"])
    return max(1, at_once // logits.shape[1])


def _top_k_of(values: Tensor, indices: Tensor, k: int) -> Best:
    """Return the ``k`` largest ``values`` (fp32), whose indices in the whole row are ``indices``.

    Value and index are packed into one integer: the high bits order the values, the low bits hold
    the index counted backwards. No two integers are equal, so the result is unique.
    """
    keys = (_keys(values).long() << 32) | (LOW_BITS - indices)
    best = keys.topk(k, dim=1).values
    return Best(_values((best >> 32).int()), LOW_BITS - (best & LOW_BITS))


def _keys(values: Tensor) -> Tensor:
    """Return integers (int32) in the order of ``values`` (fp32), with NaN the largest."""
    bits = values.contiguous().view(torch.int32)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def _values(keys: Tensor) -> Tensor:
    """Return the values of ``_keys``."""
    return (keys ^ ((keys >> 31) & 0x7FFFFFFF)).view(torch.float32)
