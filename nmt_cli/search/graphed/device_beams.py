"""The live hypotheses of each slot, as tensors on the device.

A step extends them without the CPU. It also writes its candidates into a report, from which
``Beams`` on the CPU repeats the step and finds which sentences are done.

Legend: S slots, K beam, R = S*K rows, C candidates of a slot, V vocabulary.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from nmt_cli.hardware.device import sent_to
from nmt_cli.search.beams import (
    Array,
    Beams,
    Candidates,
    SearchSettings,
    are_live,
    ranks_in_beam,
)
from nmt_cli.search.top_k import best_of_all, log_normalizers_in_fixed_shapes, top_k_in_fixed_shapes


class StepReport(NamedTuple):
    """The candidates of a step, and what else the CPU needs.

    Packed in one int32 tensor [S, 3C+2]: C scores (the bits of fp32), C parents, C tokens, whether
    a logit was not a number, and the highest used place of the past + 1.
    """

    candidates: Candidates
    is_nan: Array  # S
    num_places: int  # the highest used place of the past + 1, over all slots

    @staticmethod
    def width(num_candidates: int) -> int:
        """Return the columns of a packed report with so many candidates (C)."""
        return 3 * num_candidates + 2

    @staticmethod
    def packed(
        scores: Tensor, parents: Tensor, tokens: Tensor, is_nan: Tensor, num_places: Tensor
    ) -> Tensor:
        """Return the report of candidates [S, C], ``is_nan`` [S] and ``num_places`` [S]."""
        parts = scores.view(torch.int32), parents, tokens, is_nan[:, None], num_places[:, None]
        return torch.cat([part.to(torch.int32) for part in parts], dim=1)

    @classmethod
    def unpacked(cls, report: Tensor) -> Self:
        """Return what ``packed`` returned, from its copy on the CPU."""
        *candidates, others = np.split(report.numpy(), _ends(report.shape[1]), axis=1)
        scores, parents, tokens = candidates
        scores = np.ascontiguousarray(scores).view(np.float32)
        return cls(
            Candidates(scores, parents.astype(np.int64), tokens.astype(np.int64)),
            others[:, 0] != 0,
            int(others[:, 1].max()),
        )


def _ends(width: int) -> list[int]:
    num_candidates = (width - 2) // 3
    return [num_candidates, 2 * num_candidates, 3 * num_candidates]


class DeviceBeams:
    """The live hypotheses, in tensors that keep their addresses.

    A step chooses the new beam by the rules of ``Beams.advance``, so the parents in a report are
    places in the beam that ``Beams`` has. NeverStart, LongestOutput and BestCandidates have another
    form here, in fixed shapes; tests compare the two.

    A slot is free when no hypothesis lives in it.
    """

    def __init__(self, num_slots: int, settings: SearchSettings, device: torch.device) -> None:
        """Make beams with free slots."""
        self._settings, self._num_candidates = settings, 2 * settings.beam_size
        self._order = torch.arange(settings.beam_size, device=device)
        zeros = torch.zeros(num_slots, dtype=torch.int64, device=device)
        self.tokens = zeros[:, None] + torch.full_like(self._order, settings.bos_id)  # S K
        self.parents = zeros[:, None] + self._order  # S K
        self.scores = torch.full((num_slots, settings.beam_size), -torch.inf, device=device)
        self.lengths, self.longest = zeros, zeros.clone()  # S
        self.beam_sizes = zeros + settings.beam_size  # S
        width = StepReport.width(self._num_candidates)
        self.report = torch.zeros((num_slots, width), dtype=torch.int32, device=device)

    @property
    def state(self) -> list[Tensor]:
        """All that steps read and change; the first dimension is S."""
        return [self.tokens, self.parents, self.scores, self.lengths, self.longest, self.beam_sizes]

    def clear(self) -> None:
        """Free all slots."""
        self.tokens.fill_(self._settings.bos_id)
        self.parents.copy_(self._order.expand_as(self.parents))
        self.scores.fill_(-torch.inf)
        self.lengths.zero_()
        self.longest.zero_()

    def copy_from(self, beams: Beams, slots: Sequence[int]) -> None:
        """Copy the hypotheses in ``slots`` of ``beams``."""
        columns = (
            np.array(slots)[:, None],
            beams.lengths[slots, None],
            beams.longest[slots, None],
            beams.beam_sizes[slots, None],
            beams.tokens[slots],
            beams.parents[slots],
            beams.scores[slots].view(np.int32),
        )
        numbers = sent_to(self.tokens.device, np.concatenate(columns, axis=1).astype(np.int64))
        at, lengths, longest, beam_sizes = numbers[:, :4].unbind(1)
        tokens, parents, scores = numbers[:, 4:].chunk(3, dim=1)
        self.lengths[at], self.longest[at], self.beam_sizes[at] = lengths, longest, beam_sizes
        self.tokens[at], self.parents[at] = tokens, parents
        self.scores[at] = scores.int().view(torch.float32)

    def advance(self, logits: Tensor, num_places: Tensor) -> None:
        """Replace the hypotheses by their best continuations by ``logits`` [R, V]; report them.

        ``logits`` are overwritten. ``num_places`` [S] is for the report.
        """
        # R, over all V, also tokens that rules forbid
        normalizers = log_normalizers_in_fixed_shapes(logits)
        is_nan = normalizers.view_as(self.scores).isnan().any(dim=1)
        if self._settings.bos_id != self._settings.eos_id:
            logits[:, self._settings.bos_id].fill_(-torch.inf)
        scores, parents, tokens = self._candidates(logits, normalizers)
        self.report.copy_(StepReport.packed(scores, parents, tokens, is_nan, num_places))
        self.choose(scores, parents, tokens)

    def _candidates(self, logits: Tensor, normalizers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the scores, parents and tokens [S, C] of candidates, best first."""
        values, indices = top_k_in_fixed_shapes(logits, self._num_candidates)
        must_end = (self.lengths >= self.longest)[:, None].expand_as(self.scores).reshape(-1, 1)
        only_end = torch.full_like(values, -torch.inf)
        only_end[:, 0] = logits[:, self._settings.eos_id]
        values = torch.where(must_end, only_end, values)
        indices = indices.masked_fill(must_end, self._settings.eos_id)
        totals = values - normalizers[:, None] + self.scores.view(-1, 1)
        totals, tokens = totals.view(len(self.scores), -1), indices.view(len(self.scores), -1)
        best = best_of_all(totals, self._num_candidates)
        return best.values, best.indices // values.shape[1], tokens.gather(1, best.indices)

    def choose(self, scores: Tensor, parents: Tensor, tokens: Tensor) -> None:
        """Let the best of candidates [S, C] that do not end be the new beam of ``beam_sizes``."""
        lives = are_live(scores, tokens, self._settings.eos_id)
        ranks = ranks_in_beam(lives, torch.arange(self._num_candidates, device=scores.device))
        chosen = ranks.topk(len(self._order), dim=1, largest=False).indices  # S K
        scores = scores.masked_fill(~lives, -torch.inf).gather(1, chosen)
        scores = scores.masked_fill(self._order >= self.beam_sizes[:, None], -torch.inf)
        is_busy = (scores > -torch.inf).any(dim=1, keepdim=True)
        tokens, parents = tokens.gather(1, chosen), parents.gather(1, chosen)
        self.tokens.copy_(torch.where(is_busy, tokens, self._settings.bos_id))
        self.parents.copy_(torch.where(is_busy, parents, self._order))
        self.scores.copy_(scores)
        self.lengths.copy_((self.lengths + 1) * is_busy.squeeze(1))
