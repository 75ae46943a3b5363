"""How a search chooses the tokens that continue its hypotheses: the interface, and the best ones.

Legend: S slots, K beam, R = S*K rows, V vocabulary, C candidates of a slot.
"""

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from nmt_cli.decoding.beams import Array, Candidates
from nmt_cli.decoding.rules.logits_rule import SlotStates
from nmt_cli.decoding.top_k import top_k_of_beams


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
        live = torch.from_numpy(scores).to(logits.device)
        each = top_k_of_beams(logits, 2 * beam_size, normalizers, live)  # R C
        # They are few, so numpy chooses among them on the CPU, where the search needs them.
        values, tokens, normalizer = (
            part.cpu().numpy() for part in (each.values, each.indices, normalizers)
        )
        totals = values - normalizer[:, None] + scores.reshape(-1, 1)
        totals = totals.reshape(num_slots, -1)
        best = np.argsort(-totals, axis=1, kind="stable")[:, : 2 * beam_size]
        return Candidates(
            np.take_along_axis(totals, best, axis=1),
            best // values.shape[1],
            np.take_along_axis(tokens.reshape(num_slots, -1), best, axis=1),
        )
