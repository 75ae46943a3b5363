"""The rule that no n pieces in a row occur twice in an output.

Legend: S slots, K beam, L positions of a hypothesis, n pieces in a row, W places of n pieces.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

from nmt_cli.decoding.rules.logits_rule import SlotStates, forbid


class NoRepeatedNgrams:
    """Forbids each piece with which the last n pieces would occur for a second time."""

    name = "no_repeated_ngrams"

    def __init__(self, n: int) -> None:
        self._n = n

    def apply(self, logits: Tensor, states: SlotStates) -> None:
        """Forbid the pieces that would repeat n pieces of their hypothesis."""
        n, lengths = self._n, states.lengths
        if states.prefixes.shape[2] < n:
            return
        ngrams = sliding_window_view(states.prefixes, n, axis=2)  # S K W n
        is_written = np.arange(n, n + ngrams.shape[2]) <= lengths[:, None]  # S W
        places = (lengths[:, None] - np.arange(n - 1, 0, -1)).clip(min=0)  # S n-1
        ends = np.take_along_axis(states.prefixes, places[:, None], 2)  # S K n-1
        would_repeat = (ngrams[..., :-1] == ends[:, :, None]).all(axis=3) & is_written[:, None]
        slots, hypotheses, found = would_repeat.nonzero()
        rows = slots * states.beam_size + hypotheses
        forbid(logits, rows, ngrams[slots, hypotheses, found, -1])
