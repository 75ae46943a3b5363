"""The rule that ends outputs at their longest length."""

import numpy as np
import torch
from torch import Tensor

from nmt_cli.decoding.rules.logits_rule import SlotStates, allow_only, rows_of


class LongestOutput:
    """Allows only ``</s>`` after hypotheses of the longest length allowed (section 6.1)."""

    name = "longest_output"

    def __init__(self, eos_id: int) -> None:
        self._eos_id = eos_id

    def apply(self, logits: Tensor, states: SlotStates) -> None:
        """End the hypotheses of slots that have reached their longest output."""
        slots = np.flatnonzero(states.is_busy & (states.lengths >= states.longest))
        if not len(slots):
            return
        rows = torch.from_numpy(rows_of(slots, states).ravel()).to(logits.device)
        allow_only(logits, rows, self._eos_id)
