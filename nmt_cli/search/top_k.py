"""The k largest entries of wide rows: exact, found in blocks, equal entries by lowest index.

Legend: R rows, V vocabulary, N blocks, C entries asked for; S beams of K rows each.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from nmt_cli.model.compiled.kernels import kernels_in_use

BLOCK = 64
FEW_ENTRIES = 1 << 15  # of all rows; they are searched whole, which takes fewer calls
# Exponentials computed together: as many as fit a CPU's cache, or more on a GPU.
EXPONENTIALS_AT_ONCE = {"cpu": 1 << 18, "cuda": 1 << 27}
LEAST_SUM = 1e-30  # of exponentials that are not too small for fp32
LOW_BITS = (1 << 32) - 1
_LEAST = torch.finfo(torch.float32).min  # above -inf


class Best(NamedTuple):
    """The best entries of each row, best first."""

    values: Tensor  # R C, fp32
    indices: Tensor  # R C, int64


def top_k(rows: Tensor, k: int) -> Best:
    """Return the ``k`` largest entries of each row [R, V]; among equal ones, lower indices first.

    ``torch.topk`` over many wide rows is slow, and its choice among equal entries is undefined,
    so it could depend on the other rows. Its result is used for few rows without equal entries.
    For many rows: at least k entries are as large as the k-th largest maximum of a block, and few
    more are, so only those, of the blocks that have any, are sorted.

    Entries of -inf are not looked for; where a row has fewer than k others, -inf follows them.
    """
    num_entries = rows.shape[1]
    k = min(k, num_entries)
    if rows.numel() <= FEW_ENTRIES and k < num_entries:
        best = rows.float().topk(k + 1, dim=1)
        if not (best.values[:, 1:] == best.values[:, :-1]).any():  # only one choice is possible
            return Best(best.values[:, :k], best.indices[:, :k])
    if _are_searched_whole(rows, k):
        return best_of_all(rows.float(), k)
    maxima = _maxima_of_blocks(rows)  # R N
    of_blocks = _values(_keys(maxima).topk(k, dim=1).values[:, -1:])  # integers are faster here
    least = of_blocks.clamp(min=_LEAST)  # R 1
    return _searched(rows, k, maxima, lambda entries, of_rows: _as_large(entries, least[of_rows]))


def top_k_of_beams(rows: Tensor, k: int, normalizers: Tensor, scores: Tensor) -> Best:
    """Return the entries of ``top_k`` that the ``k`` best continuations of a beam may be.

    A continuation is an entry minus its row's normalizer [R] plus its row's score [S, K]. Entries
    that are not among the ``k`` best of the K rows of a beam may be missing; -inf stands for them.
    About ``k`` blocks of a beam are searched; ``top_k`` searches as many of each row.
    """
    if _are_searched_whole(rows, k):
        return top_k(rows, k)
    maxima = _maxima_of_blocks(rows)  # R N
    normalizer, score = normalizers[:, None], scores.view(-1, 1)  # R 1

    def continued(entries: Tensor, of_rows: Tensor | slice) -> Tensor:
        return entries - normalizer[of_rows] + score[of_rows]

    of_blocks = continued(maxima, slice(None)).view(len(scores), -1).topk(k, dim=1).values
    least = of_blocks[:, -1:].clamp(min=_LEAST).repeat_interleave(scores.shape[1], dim=0)  # R 1
    return _searched(
        rows,
        k,
        maxima,
        lambda entries, of_rows: _as_large(continued(entries, of_rows), least[of_rows]),
    )


def top_k_in_fixed_shapes(rows: Tensor, k: int) -> Best:
    """Return what ``top_k`` returns, by tensors whose shapes do not depend on the entries.

    So it never waits for a GPU, and a CUDA graph can repeat it. The k best entries are in the k
    blocks with the best maxima, where lower indices decide between equal ones, too. Entries of -inf
    are found like any other.
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
    """Return what ``top_k`` returns for few fp32 ``values`` [R, V], in fixed shapes."""
    return _unpacked(_packed(values, torch.arange(values.shape[1], device=values.device)), k)


def _are_searched_whole(rows: Tensor, k: int) -> bool:
    return rows.numel() <= FEW_ENTRIES or rows.shape[1] <= 2 * k * BLOCK


def _searched(
    rows: Tensor, k: int, maxima: Tensor, is_large: Callable[[Tensor, Tensor | slice], Tensor]
) -> Best:
    """Return the best of the entries that are large, which only blocks with large ``maxima`` have.

    ``is_large`` gets entries [N, any] and the row of each of the N.
    """
    num_entries = rows.shape[1]
    row, block = is_large(maxima, slice(None)).nonzero(as_tuple=True)
    if num_entries % BLOCK == 0:
        begin = block * BLOCK
        windows = rows.view(-1, BLOCK).index_select(0, row * maxima.shape[1] + block)
        found = is_large(windows, row)
    else:  # the last window overlaps the one before, so that it is as wide
        begin = (block * BLOCK).clamp(max=num_entries - BLOCK)
        windows = rows.flatten().unfold(0, BLOCK, 1).index_select(0, row * num_entries + begin)
        inside = torch.arange(BLOCK, device=rows.device)
        is_own = begin[:, None] + inside >= block[:, None] * BLOCK
        found = is_large(windows, row) & is_own
    places = found.flatten().nonzero().squeeze(1)
    window, place = places // BLOCK, places % BLOCK
    packed = _packed(windows.flatten()[places].float(), begin[window] + place)
    return _unpacked(_padded(packed, row[window], len(rows), k), k)


def _maxima_of_blocks(rows: Tensor) -> Tensor:
    """Return the largest entry [R, N] of each BLOCK entries, fp32; the last may be shorter."""
    whole = rows.shape[1] // BLOCK * BLOCK
    maxima = rows[:, :whole].view(len(rows), -1, BLOCK).amax(dim=2)
    if whole == rows.shape[1]:
        return maxima.float()
    return torch.cat([maxima, rows[:, whole:].amax(dim=1, keepdim=True)], dim=1).float()


def _as_large(entries: Tensor, least: Tensor) -> Tensor:
    """Return where ``entries`` are as large as ``least``, or not a number."""
    return (entries < least).logical_not_()


def _padded(packed: Tensor, row: Tensor, num_rows: int, k: int) -> Tensor:
    """Return the packed entries, which come by row, as a table [R, at least k]."""
    counts = torch.bincount(row, minlength=num_rows)
    width = max(k, int(counts.max()))
    nothing = torch.full((width,), -torch.inf, device=packed.device)
    table = _packed(nothing, torch.arange(width, device=packed.device)).repeat(num_rows, 1)
    starts = counts.cumsum(0) - counts
    table[row, torch.arange(len(row), device=row.device) - starts[row]] = packed
    return table


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
    """Return log(sum(exp(row))) [R] in fp32, without a second tensor of the logits' size."""
    if logits.device.type != "cpu":
        return log_normalizers_in_fixed_shapes(logits)
    kernels = kernels_in_use()
    if kernels is not None and logits.dtype is torch.float32:
        return torch.from_numpy(kernels.log_normalizers(logits.numpy()))
    chunks = torch.split(logits, rows_at_once(logits))
    # exp2 takes 0.4 times as long, but rounds the last entries of a block of memory by other code,
    # so that a row would depend on the rows beside it.
    sums = torch.cat([chunk.float().exp().sum(dim=1) for chunk in chunks])
    normalizers = sums.log()
    is_precise = (sums > LEAST_SUM) & (sums < torch.inf)
    if not is_precise.all():
        extreme = is_precise.logical_not_().nonzero().squeeze(1)
        normalizers[extreme] = log_normalizers_in_fixed_shapes(logits[extreme])
    return normalizers


def log_normalizers_in_fixed_shapes(logits: Tensor) -> Tensor:
    """Return ``log_normalizers`` by operations that depend on the shape of ``logits`` only.

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
