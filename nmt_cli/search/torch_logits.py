"""Logits in a tensor of torch: on a GPU, or on a CPU without the library.

Legend: R rows, V vocabulary, S slots, K hypotheses of each, N blocks, C entries of a row.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nmt_cli.hardware.device import sent_to
from nmt_cli.model.compiled.c_library import Array
from nmt_cli.search.logits import Banned, Candidates, Restriction
from nmt_cli.search.sentences import Sampling, Shortlist

BLOCK = 64
EXPONENTIALS_AT_ONCE = 1 << 27  # to bound their memory
LOW_BITS = (1 << 32) - 1


class TorchLogits:
    """``Logits`` [R, V] on any device: only what the search asks for is copied to the CPU."""

    def __init__(self, values: Tensor, of_rows: Tensor | None = None) -> None:
        """``of_rows`` [R] are the normalizers, if they are known."""
        self.values, self._known = values, of_rows

    @property
    def _normalizers(self) -> Tensor:
        if self._known is None:
            self._known = log_normalizers(self.values)
        return self._known

    def normalizers(self) -> Array:
        """Return log(sum(exp(row))) [R] in fp32; NaN for a row with a logit that is NaN."""
        return _read(self._normalizers)

    def within(self, shortlists: Sequence[Shortlist]) -> None:
        """Let only the tokens of the shortlist of each slot [S] follow its hypotheses."""
        num_slots, width = len(shortlists), self.values.shape[1]
        of_slots = np.repeat(np.arange(num_slots), [len(each.tokens) for each in shortlists])
        tokens = np.concatenate([each.tokens for each in shortlists])
        is_other = torch.ones((num_slots, 1, width), dtype=torch.bool, device=self.values.device)
        slots, listed = self._sent(of_slots, tokens)
        is_other[slots, 0, listed] = False
        self.values.view(num_slots, -1, width).masked_fill_(is_other, -torch.inf)

    def restrict(self, restriction: Restriction) -> None:
        """Set the logits of tokens that may not follow to -inf."""
        self._known = self._normalizers  # those of before
        if isinstance(restriction, Banned):
            self.values[self._sent(*restriction)] = -torch.inf
        else:
            rows, bounds, tokens = restriction
            places = self._sent(np.repeat(rows, np.diff(bounds)), tokens)
            kept = self.values[places]
            self.values.index_fill_(0, self._sent(rows)[0], -torch.inf)
            self.values[places] = kept

    def best_of_slots(self, scores: Array, number: int) -> Candidates:
        """Return the ``number`` best continuations of hypotheses with ``scores`` [S, K]."""
        values, tokens = self.best_of_rows(number)
        # They are few, so numpy chooses among them on the CPU, where the search needs them.
        totals, shape = values + scores.reshape(-1, 1), (*scores.shape, values.shape[1])
        return Candidates.best_of(totals.reshape(shape), tokens.reshape(shape), number)

    def best_of_rows(self, number: int) -> tuple[Array, Array]:
        """Return the greatest log-probabilities [R, C] of each row and their tokens."""
        best = top_k(self.values, number)
        return _read(best.values - self._normalizers[:, None]), _read(best.indices)

    def log_probabilities(self, rows: Array, tokens: Array) -> Array:
        """Return that of the n-th of ``tokens`` in the n-th of ``rows`` [N]."""
        at, wanted = self._sent(rows, tokens)
        return _read(self.values[at, wanted].float() - self._normalizers[at])

    def draw(self, sampling: Sampling, uniforms: Array) -> tuple[Array, Array]:
        """Return a token [R] for each row, drawn by its number in [0, 1), and log-probabilities."""
        drawn = sent_to(self.values.device, torch.from_numpy(uniforms))
        at_once = rows_at_once(self.values)
        chunks = zip(self.values.split(at_once), drawn.split(at_once), strict=True)
        tokens = torch.cat([drawn_tokens(*chunk, sampling) for chunk in chunks])
        values = self.values.gather(1, tokens[:, None])[:, 0].float() - self._normalizers
        return _read(tokens), _read(values)

    @property
    def rows_at_once(self) -> None:
        """Nothing: all are in memory."""

    def select(self, rows: Array) -> "TorchLogits":
        """Return a copy of ``rows``, with their restrictions."""
        (at,) = self._sent(rows)
        of_rows = None if self._known is None else self._known[at]
        return TorchLogits(self.values[at], of_rows)

    def mean_with(self, others: Iterable["TorchLogits"]) -> "TorchLogits":
        """Return the logarithms of the mean probabilities of these and ``others``."""
        # Replaced, so that only the next logits are in memory beside the sum.
        total = self.values = self.values.float().log_softmax(1)
        number = 1
        for each in others:
            torch.logaddexp(total, each.values.float().log_softmax(1), out=total)
            number += 1
        return TorchLogits(total.sub_(math.log(number)))

    def _sent(self, *arrays: Array) -> tuple[Tensor, ...]:
        """Return whole numbers on the device of the logits, as places there."""
        device = self.values.device
        return tuple(sent_to(device, torch.from_numpy(each.astype(np.int64))) for each in arrays)


def drawn_tokens(logits: Tensor, drawn: Tensor, sampling: Sampling) -> Tensor:
    """Return a token [R] for each row of ``logits`` [R, V], decided by ``drawn`` [R] in [0, 1).

    It is the first token where the share of the weights so far exceeds the number; never one
    without weight. The tokens are in their own order, or the best come first if some are left out.
    A row without weights, or with NaN, gives the first.
    """
    values, order = logits.float(), None
    if sampling.top_k is not None:
        values, order = top_k(logits, sampling.top_k)
    elif sampling.top_p < 1:
        values, order = values.sort(dim=1, descending=True, stable=True)
    weights = ((values - values.amax(dim=1, keepdim=True)) / sampling.fp32_temperature).exp()
    sums = weights.cumsum(dim=1, dtype=torch.float64)
    num_outside = (sums - weights >= sampling.top_p * sums[:, -1:]).sum(dim=1, keepdim=True)
    totals = sums.gather(1, (sums.shape[1] - 1 - num_outside).clamp(min=0))
    places = (sums <= drawn[:, None] * totals).sum(dim=1)
    places = places.minimum((sums < totals).sum(dim=1))  # rounding may lead behind the last weight
    return places if order is None else order.gather(1, places[:, None])[:, 0]


def _read(tensor: Tensor) -> Any:
    return tensor.cpu().numpy()


class BestEntries(NamedTuple):
    """The best entries of each row, best first."""

    values: Tensor  # R C, fp32
    indices: Tensor  # R C, int64


def top_k(rows: Tensor, k: int) -> BestEntries:
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


def best_of_all(values: Tensor, k: int) -> BestEntries:
    """Return the ``k`` largest of few fp32 ``values`` [R, V], lower indices first if equal."""
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
    keys = _flipped(values.contiguous().view(torch.int32))
    return (keys.long() << 32) | (LOW_BITS - indices)


def _unpacked(packed: Tensor, k: int) -> BestEntries:
    """Return the ``k`` largest of each row of packed entries; no two are equal."""
    best = packed.topk(k, dim=1).values
    values = _flipped((best >> 32).int()).view(torch.float32)
    return BestEntries(values, LOW_BITS - (best & LOW_BITS))


def _flipped(bits: Tensor) -> Tensor:
    """Return integers (int32) in the order of the fp32 numbers with these ``bits``; NaN is largest.

    Of these integers it returns the bits again.
    """
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)
