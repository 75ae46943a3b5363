"""The rule that ends outputs at their longest length."""

import numpy as np
import torch
from torch import Tensor

from nmt_cli.decoding.rules.logits_rule import SlotStates, allow_only


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
        rows = (slots[:, None] * states.beam_size + np.arange(states.beam_size)).ravel()
        allow_only(logits, torch.from_numpy(rows).to(logits.device), self._eos_id)
