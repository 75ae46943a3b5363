"""How a search chooses the tokens that continue its hypotheses: the best ones, or drawn ones.

Slots and hypotheses are those of ``SlotStates``, so for first tokens K is 1.

Legend: S slots, K hypotheses of each, R = S*K rows, V vocabulary, C candidates of a slot.
"""

from typing import Protocol

import numpy as np

from nmt_cli.search.beams import Array, Candidates
from nmt_cli.search.logits import Logits
from nmt_cli.search.rules.rule import SlotStates
from nmt_cli.search.sampling import SAMPLING, Sampling, uniforms


class Choice(Protocol):
    """Chooses candidates after all rules have restricted the tokens."""

    @property
    def name(self) -> str:
        """The key of this choice's data in ``Sentence.rule_data``."""
        ...

    @property
    def needs_data(self) -> bool:
        """Whether it chooses the best candidates for sentences that have no data for it."""
        ...

    def candidates(self, logits: Logits, scores: Array, states: SlotStates) -> Candidates:
        """Return continuations of each slot's hypotheses, whose log-probabilities are ``scores``.

        ``scores`` [S, K] are -inf where there is no hypothesis. May restrict ``logits`` [R, V].
        Returns at least as many as the beam has places; those that do not exist have -inf.
        """
        ...


class BestCandidates:
    """The most probable continuations: beam search, or greedy search if the beam is 1."""

    name, needs_data = "best_candidates", True

    def __init__(self, number: int) -> None:
        """``number`` is that of the candidates of a slot (C)."""
        self._number = number

    def candidates(self, logits: Logits, scores: Array, states: SlotStates) -> Candidates:
        """Return the best continuations of each slot's hypotheses."""
        del states
        return logits.best_of_slots(scores, self._number)


class SampledCandidates:
    """A drawn continuation of each hypothesis of a sample; the beam must be 1.

    ``Sentence.rule_data`` holds the key of its random numbers. The score of a candidate is the
    model's log-probability, whatever the temperature.
    """

    name, needs_data = SAMPLING, False

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling

    def candidates(self, logits: Logits, scores: Array, states: SlotStates) -> Candidates:
        """Return one continuation of each slot's hypothesis."""
        keys = np.zeros(len(scores), np.uint64)
        keys[list(states.data)] = np.array(list(states.data.values()), np.uint64)
        tokens, values = logits.draw(self._sampling, uniforms(keys, states.lengths))
        parents = np.zeros(scores.shape, np.int64)
        return Candidates(values[:, None] + scores, parents, tokens[:, None])
