"""The rule that outputs have a number of pieces at least."""

import numpy as np
import torch
from torch import Tensor

from nmt_cli.decoding.rules.logits_rule import SlotStates, rows_of


class MinimumLength:
    """Forbids ``</s>`` after hypotheses of fewer than ``min_length`` pieces."""

    name = "minimum_length"

    def __init__(self, min_length: int, eos_id: int) -> None:
        self._min_length, self._eos_id = min_length, eos_id

    def apply(self, logits: Tensor, states: SlotStates) -> None:
        """Keep the hypotheses of slots from ending before their minimum length."""
        slots = np.flatnonzero(states.is_busy & (states.lengths < self._min_length))
        if len(slots):
            rows = torch.from_numpy(rows_of(slots, states).ravel()).to(logits.device)
            logits[rows, self._eos_id] = -torch.inf
