"""Candidates that are drawn: what continues the hypothesis of a sample.

Legend: S slots (= rows, since the beam is 1).
"""

import numpy as np

from nmt_cli.search.beams import Array, Candidates
from nmt_cli.search.logits import Logits
from nmt_cli.search.rules.rule import SlotStates
from nmt_cli.search.sampling import SAMPLING, Sampling, uniforms


class SampledCandidates:
    """A drawn continuation of each hypothesis; the beam must be 1.

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
