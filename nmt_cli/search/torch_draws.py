"""Tokens that are drawn from logits in torch.

Legend: S rows, V vocabulary, W weights of a row.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from nmt_cli.search.sampling import Sampling
from nmt_cli.search.top_k import BLOCK, indices_at, rows_at_once, sorted_entries, top_k

# A nucleus is looked for among so many best pieces, and then in the sorted row.
NUCLEI = (32, 256, 2048)


class _DrawnPlaces(NamedTuple):
    """Places [S] that were drawn among the best entries of rows."""

    places: Tensor
    missing: Tensor  # of the weight of the nucleus; more than 0 if it has further entries
    least: Tensor  # the weight of the last of these entries


class TorchDraws:
    """Draws tokens by their logits, as ``Sampling`` says."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        # Smaller temperatures are 0 in fp32; with this one only the largest logits count already.
        self._temperature = max(sampling.temperature, torch.finfo(torch.float32).tiny)

    def tokens(self, logits: Tensor, drawn: Tensor) -> Tensor:
        """Return a token [S] for each row of ``logits`` [S, V], decided by ``drawn`` in [0, 1)."""
        at_once = rows_at_once(logits)
        chunks = zip(logits.split(at_once), drawn.split(at_once), strict=True)
        return torch.cat([self._tokens(*chunk) for chunk in chunks])

    def _tokens(self, logits: Tensor, drawn: Tensor) -> Tensor:
        sampling = self._sampling
        if sampling.top_k is not None:
            best = top_k(logits, sampling.top_k)
            places = self._draw_places(best.values, drawn).places
            return best.indices.gather(1, places[:, None])[:, 0]
        weights = self._weights(logits.float(), logits.amax(dim=1, keepdim=True))
        if sampling.top_p == 1:
            return _place_in_blocks(weights, drawn)
        return self._draw_from_nuclei(
            logits, drawn, weights.sum(dim=1, keepdim=True, dtype=torch.float64), *NUCLEI
        )

    def _draw_from_nuclei(
        self, logits: Tensor, drawn: Tensor, totals: Tensor, num_best: int, *larger: int
    ) -> Tensor:
        """Return tokens [S] drawn from the nuclei of rows whose weights have the sums ``totals``.

        The nucleus of a row is looked for among its ``num_best`` best, then among as many as the
        ``larger`` numbers say, and at last in the sorted row. If even pieces of the least weight so
        far would not complete it within the next number, the row is sorted at once.
        """
        best = top_k(logits, num_best)
        places, missing, least = self._draw_places(best.values, drawn, totals)
        tokens = best.indices.gather(1, places[:, None])[:, 0]
        is_near = (missing <= (larger[0] - num_best) * least) if larger else missing < 0
        near = ((missing > 0) & is_near).nonzero()[:, 0]
        if len(near):
            rows = logits[near]
            tokens[near] = self._draw_from_nuclei(rows, drawn[near], totals[near], *larger)
        far = ((missing > 0) & ~is_near).nonzero()[:, 0]
        if len(far):
            tokens[far] = self._draw_from_sorted(logits[far], drawn[far], totals[far])
        return tokens

    def _draw_from_sorted(self, logits: Tensor, drawn: Tensor, totals: Tensor) -> Tensor:
        ordered = sorted_entries(logits)
        return indices_at(logits, ordered, self._draw_places(ordered, drawn, totals).places)

    def _draw_places(
        self, best: Tensor, drawn: Tensor, totals: Tensor | None = None
    ) -> _DrawnPlaces:
        """Return places among the ``best`` entries [S, K] of rows.

        They are drawn from the nuclei of the rows, whose weights have the sums ``totals`` [S, 1];
        without ``totals``, from those of the K entries.
        """
        weights = self._weights(best, best[:, :1])
        sums = weights.cumsum(dim=1, dtype=torch.float64)
        wanted = self._sampling.top_p * (sums[:, -1:] if totals is None else totals)
        num_outside = (sums - weights >= wanted).sum(dim=1, keepdim=True)
        in_nuclei = sums.gather(1, best.shape[1] - 1 - num_outside)
        places = _place(sums, in_nuclei, drawn)
        return _DrawnPlaces(places, (wanted - sums[:, -1:])[:, 0], weights[:, -1])

    def _weights(self, logits: Tensor, largest: Tensor) -> Tensor:
        return ((logits - largest) / self._temperature).exp()


def _place(sums: Tensor, totals: Tensor, drawn: Tensor) -> Tensor:
    """Return the first place [S] where the share of the sum so far exceeds ``drawn`` [S].

    ``sums`` [S, W] of weights are in fp64, and ``totals`` [S, 1] are those of the last place that
    may be returned. A place without weight is never returned. A row without weights, or with NaN,
    gives place 0.
    """
    places = (sums <= drawn[:, None] * totals).sum(dim=1)
    return places.minimum((sums < totals).sum(dim=1))  # rounding may lead behind the last weight


def _place_in_blocks(weights: Tensor, drawn: Tensor) -> Tensor:
    """Return the place of ``_place`` for whole rows, in less time: a block first, then in it."""
    padded = pad(weights, (0, -weights.shape[1] % BLOCK)).view(len(weights), -1, BLOCK)
    blocks = padded.sum(dim=2, dtype=torch.float64)
    ends = blocks.cumsum(dim=1)
    chosen = _place(ends, ends[:, -1:], drawn)[:, None]
    inside = drawn * ends[:, -1] - (ends - blocks).gather(1, chosen)[:, 0]
    rest = (inside / blocks.gather(1, chosen)[:, 0]).clamp(0.0, 1.0)
    rows = torch.arange(len(weights), device=weights.device)
    sums = padded[rows, chosen[:, 0]].cumsum(dim=1, dtype=torch.float64)
    return chosen[:, 0] * BLOCK + _place(sums, sums[:, -1:], rest)
