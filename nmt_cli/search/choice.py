"""How a search chooses the tokens that continue its hypotheses: the interface, and the best ones.

Slots and hypotheses are those of ``SlotStates``, so for first tokens K is 1.

Legend: S slots, K hypotheses of each, R = S*K rows, V vocabulary, C candidates of a slot.
"""

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from nmt_cli.model.compiled.kernels import kernels_in_use
from nmt_cli.search.beams import Array, Candidates
from nmt_cli.search.rules.logits_rule import SlotStates
from nmt_cli.search.top_k import top_k_of_beams


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
    """The most probable continuations: beam search, or greedy search if the beam is 1."""

    name = "best_candidates"

    def __init__(self, number: int) -> None:
        """``number`` is that of the candidates of a slot (C)."""
        self._number = number

    def candidates(
        self, logits: Tensor, normalizers: Tensor, scores: Array, states: SlotStates
    ) -> Candidates:
        """Return the best continuations of each slot's hypotheses."""
        del states
        live, kernels = torch.from_numpy(scores).to(logits.device), kernels_in_use()
        if kernels is not None and logits.dtype is torch.float32:
            array = logits.numpy()
            if kernels.can_choose(array, self._number):
                found = kernels.best_continuations(array, normalizers.numpy(), scores, self._number)
                return Candidates(*found)
        each = top_k_of_beams(logits, self._number, normalizers, live)  # R C
        # They are few, so numpy chooses among them on the CPU, where the search needs them.
        values, tokens, normalizer = (
            part.cpu().numpy() for part in (each.values, each.indices, normalizers)
        )
        totals = values - normalizer[:, None] + scores.reshape(-1, 1)
        shape = *scores.shape, values.shape[1]
        return best_of(totals.reshape(shape), tokens.reshape(shape), self._number)


def best_of(totals: Array, tokens: Array, number: int) -> Candidates:
    """Return the ``number`` best continuations of each slot.

    ``totals`` and ``tokens`` [S, K, C] are the scores and the last tokens of continuations.
    """
    num_slots, _, num_continuations = totals.shape
    totals, tokens = totals.reshape(num_slots, -1), tokens.reshape(num_slots, -1)
    if (missing := number - totals.shape[1]) > 0:
        # If the vocabulary is tiny, one hypothesis has fewer continuations than that. What is
        # filled in has probability 0, so it is never continued; its parent means nothing.
        totals = np.pad(totals, ((0, 0), (0, missing)), constant_values=-np.inf)
        tokens = np.pad(tokens, ((0, 0), (0, missing)))
    best = np.argsort(-totals, axis=1, kind="stable")[:, :number]
    slots = np.arange(num_slots)[:, None]
    return Candidates(totals[slots, best], best // num_continuations, tokens[slots, best])
