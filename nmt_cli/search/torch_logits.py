"""Logits in a tensor of torch: on a GPU, or on a CPU without the library.

Legend: R rows, V vocabulary, S slots, K hypotheses of each, C entries of a row.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nmt_cli.hardware.device import sent_to
from nmt_cli.model.compiled.kernels import Array
from nmt_cli.search.logits import Candidates, Permitted, Restrictions
from nmt_cli.search.sampling import Sampling
from nmt_cli.search.top_k import log_normalizers, rows_at_once, top_k


class TorchLogits:
    """``Logits`` [R, V] on any device: only what the search asks for is copied to the CPU."""

    def __init__(self, values: Tensor, of_rows: Tensor | None = None) -> None:
        """``of_rows`` [R] are the normalizers, if they are known."""
        self.values, self._known = values, of_rows

    def __len__(self) -> int:
        return len(self.values)

    @property
    def _normalizers(self) -> Tensor:
        if self._known is None:
            self._known = log_normalizers(self.values)
        return self._known

    def normalizers(self) -> Array:
        """Return log(sum(exp(row))) [R] in fp32; NaN for a row with a logit that is NaN."""
        return _read(self._normalizers)

    def restrict(self, restrictions: Restrictions) -> None:
        """Set the logits of tokens that may not follow to -inf."""
        self._known = self._normalizers  # those of before
        banned, permitted = restrictions
        if banned is not None and len(banned.rows):
            self.values[self._sent(*banned)] = -torch.inf
        if permitted is not None and len(permitted.rows):
            self._permit_only(permitted)

    def _permit_only(self, permitted: Permitted) -> None:
        rows, bounds, tokens = permitted
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
