"""The log-probabilities of the live hypotheses of a search after each of their tokens.

Legend: S slots, K beam, L positions of a hypothesis, B some of the slots.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class ScoreHistory:
    """What ``Beams`` keeps, beside the prefixes, if the scores of tokens are asked for."""

    def __init__(self, num_slots: int, beam_size: int) -> None:
        self._totals = np.zeros((num_slots, beam_size, 32), np.float32)  # S K L

    def append(self, slots: Array, parents: Array, lengths: Array, scores: Array) -> None:
        """Continue the hypotheses in ``slots`` [B].

        They had ``lengths`` [B] tokens, and now have ``scores`` [B, K]. ``parents`` [B, K] are the
        places in the beam of the hypotheses that were continued.
        """
        used, capacity = int(lengths.max()), self._totals.shape[2]
        if used == capacity:
            self._totals = np.concatenate([self._totals, np.zeros_like(self._totals)], axis=2)
        self._totals[slots, :, :used] = self._totals[slots[:, None], parents, :used]
        self._totals[slots, :, lengths] = scores

    def token_scores(
        self, slot: int, place: int, length: int, log_probability: float
    ) -> tuple[float, ...]:
        """Return the log-probability of each of the ``length`` tokens of a hypothesis, and of
        ``</s>``, with which its log-probability is ``log_probability``."""
        totals = [0.0, *self._totals[slot, place, :length].tolist(), log_probability]
        return tuple(np.diff(totals).tolist())

    def keep(self, slots: Any) -> None:
        """Drop all other slots."""
        self._totals = self._totals[slots]
