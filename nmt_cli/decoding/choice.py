"""How a search chooses the tokens that continue its hypotheses: the interface, and the best ones.

Legend: S slots, K beam, R = S*K rows, V vocabulary, C candidates of a slot.
"""

from typing import Protocol

import torch
from torch import Tensor

from nmt_cli.decoding.beams import Array, Candidates
from nmt_cli.decoding.rules.logits_rule import SlotStates
from nmt_cli.decoding.top_k import top_k


class Choice(Protocol):
    """Chooses candidates after all rules have forbidden tokens."""

    @property
    def name(self) -> str:
        """The key of this choice's data in ``Sentence.rule_data``."""
        ...

    def candidates(
        self, logits: Tensor, normalizers: Tensor, scores: Array, states: SlotStates
    ) -> Candidates:
        """Return continuations of each slot's hypotheses, whose log-probabilities are ``scores``.

        ``normalizers`` [R] are those of ``logits`` [R, V] before rules applied. ``scores`` [S, K]
        are -inf where there is no hypothesis.
        """
        ...


class BestCandidates:
    """The most probable continuations: beam search, or greedy search if the beam is 1.

    There are 2K of them: at most one per hypothesis ends, so at least K do not end.
    """

    name = "best_candidates"

    def candidates(
        self, logits: Tensor, normalizers: Tensor, scores: Array, states: SlotStates
    ) -> Candidates:
        """Return the best continuations of each slot's hypotheses."""
        del states
        num_slots, beam_size = scores.shape
        each = top_k(logits, 2 * beam_size)  # R C, the best of each hypothesis
        rows = torch.from_numpy(scores).to(logits.device).view(-1, 1)
        totals = each.values - normalizers[:, None] + rows
        totals.masked_fill_(rows == -torch.inf, -torch.inf)
        best = top_k(totals.view(num_slots, -1), 2 * beam_size)
        tokens = each.indices.view(num_slots, -1).gather(1, best.indices)
        return Candidates(
            best.values.cpu().numpy(),
            (best.indices // each.indices.shape[1]).cpu().numpy(),
            tokens.cpu().numpy(),
        )
