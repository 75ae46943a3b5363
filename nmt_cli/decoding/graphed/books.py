"""The live hypotheses of each slot on the device, which steps continue without waiting for the CPU.

``Beams`` on the CPU keeps the full books: prefixes, hypotheses that have ended, and when a sentence
is done. It follows by the reports of the steps.

Legend: S slots, K beam, R = S*K rows, C candidates of a slot, V vocabulary.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nmt_cli.decoding.beams import Array, Beams, Candidates
from nmt_cli.decoding.top_k import best_of_all, log_normalizers, top_k_in_fixed_shapes
from nmt_cli.hardware.cuda_graphs import sent_to


class Marks(NamedTuple):
    """The pieces that mark the ends of an output; they may be one."""

    bos_id: int
    eos_id: int


class StepReport(NamedTuple):
    """What the CPU needs to know of a step."""

    candidates: Candidates
    is_nan: Array  # S whether a logit was not a number
    num_places: int  # of the past, that are used or in front of a used one, in any slot

    @classmethod
    def read(cls, report: Tensor) -> "StepReport":
        """Return the ``report`` of books, which is on the CPU by now."""
        numbers = report.numpy()
        num_candidates = (numbers.shape[1] - 2) // 3
        scores, parents, tokens = (
            numbers[:, part * num_candidates : (part + 1) * num_candidates] for part in range(3)
        )
        candidates = Candidates(
            np.ascontiguousarray(scores).view(np.float32),
            parents.astype(np.int64),
            tokens.astype(np.int64),
        )
        return cls(candidates, numbers[:, -2] != 0, int(numbers[:, -1].max()))


class DeviceBooks:
    """The live hypotheses, in tensors that keep their addresses.

    Two rules apply: the start mark is forbidden, and only the end mark may follow the longest
    output. The best K of 2K candidates that do not end are the new beam, as in ``Beams``. A slot is
    free when no hypothesis lives in it.
    """

    def __init__(self, num_slots: int, beam_size: int, marks: Marks, device: torch.device) -> None:
        """Make books with free slots."""
        self._marks, self._num_candidates = marks, 2 * beam_size
        self._order = torch.arange(beam_size, device=device)
        zeros = torch.zeros(num_slots, dtype=torch.int64, device=device)
        self.tokens = zeros[:, None] + torch.full_like(self._order, marks.bos_id)  # S K
        self.parents = zeros[:, None] + self._order  # S K
        self.scores = torch.full((num_slots, beam_size), -torch.inf, device=device)
        self.lengths, self.longest = zeros, zeros.clone()  # S
        width = 3 * self._num_candidates + 2
        # S 3C+2, int32: scores (the bits of fp32), parents, tokens, is_nan, places of the past
        self.report = torch.zeros((num_slots, width), dtype=torch.int32, device=device)

    @property
    def state(self) -> list[Tensor]:
        """All that steps read and change; the first dimension is S."""
        return [self.tokens, self.parents, self.scores, self.lengths, self.longest]

    def put(self, slots: Sequence[int], beams: Beams) -> None:
        """Copy what ``beams`` holds in ``slots``."""
        columns = (
            np.array(slots)[:, None],
            beams.lengths[slots, None],
            beams.longest[slots, None],
            beams.tokens[slots],
            beams.parents[slots],
            beams.scores[slots].view(np.int32),
        )
        numbers = sent_to(self.tokens.device, np.concatenate(columns, axis=1).astype(np.int64))
        at, lengths, longest = numbers[:, :3].unbind(1)
        tokens, parents, scores = numbers[:, 3:].chunk(3, dim=1)
        self.lengths[at], self.longest[at] = lengths, longest
        self.tokens[at], self.parents[at] = tokens, parents
        self.scores[at] = scores.int().view(torch.float32)

    def advance(self, logits: Tensor, num_places: Tensor) -> None:
        """Replace the hypotheses by their best continuations by ``logits`` [R, V]; report them.

        ``logits`` are overwritten. ``num_places`` [S] is for the report.
        """
        normalizers = log_normalizers(logits)  # R, over all V, also tokens that rules forbid
        is_nan = normalizers.view_as(self.scores).isnan().any(dim=1)
        if self._marks.bos_id != self._marks.eos_id:
            logits[:, self._marks.bos_id].fill_(-torch.inf)
        scores, parents, tokens = self._candidates(logits, normalizers)
        numbers = scores.view(torch.int32), parents, tokens, is_nan[:, None], num_places[:, None]
        self.report.copy_(torch.cat([each.to(torch.int32) for each in numbers], dim=1))
        self._choose(scores, parents, tokens)

    def _candidates(self, logits: Tensor, normalizers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the scores, parents and tokens [S, C] of candidates, best first."""
        values, indices = top_k_in_fixed_shapes(logits, self._num_candidates)
        must_end = (self.lengths >= self.longest)[:, None].expand_as(self.scores).reshape(-1, 1)
        only_end = torch.full_like(values, -torch.inf)
        only_end[:, 0] = logits[:, self._marks.eos_id]
        values = torch.where(must_end, only_end, values)
        indices = indices.masked_fill(must_end, self._marks.eos_id)
        totals = values - normalizers[:, None] + self.scores.view(-1, 1)
        totals, tokens = totals.view(len(self.scores), -1), indices.view(len(self.scores), -1)
        best = best_of_all(totals, self._num_candidates)
        return best.values, best.indices // values.shape[1], tokens.gather(1, best.indices)

    def _choose(self, scores: Tensor, parents: Tensor, tokens: Tensor) -> None:
        lives = (scores > -torch.inf) & (tokens != self._marks.eos_id)
        ranks = torch.arange(self._num_candidates, device=scores.device)
        late = torch.where(lives, ranks, ranks + self._num_candidates)
        chosen = late.topk(len(self._order), dim=1, largest=False).indices  # S K
        scores = scores.masked_fill(~lives, -torch.inf).gather(1, chosen)
        is_busy = (scores > -torch.inf).any(dim=1, keepdim=True)
        tokens, parents = tokens.gather(1, chosen), parents.gather(1, chosen)
        self.tokens.copy_(torch.where(is_busy, tokens, self._marks.bos_id))
        self.parents.copy_(torch.where(is_busy, parents, self._order))
        self.scores.copy_(scores)
        self.lengths.copy_((self.lengths + 1) * is_busy.squeeze(1))

    def clear(self) -> None:
        """Free all slots."""
        self.tokens.fill_(self._marks.bos_id)
        self.parents.copy_(self._order.expand_as(self.parents))
        self.scores.fill_(-torch.inf)
        self.lengths.zero_()
        self.longest.zero_()
