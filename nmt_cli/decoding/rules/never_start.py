"""The rule that keeps the start mark out of outputs."""

import torch
from torch import Tensor

from nmt_cli.decoding.rules.logits_rule import SlotStates


class NeverStart:
    """Forbids ``<s>``, unless the model uses ``</s>`` as its start mark too."""

    name = "never_start"

    def __init__(self, bos_id: int, eos_id: int) -> None:
        self._bos_id = bos_id if bos_id != eos_id else None

    def apply(self, logits: Tensor, states: SlotStates) -> None:
        """Forbid the start mark in every row."""
        del states
        if self._bos_id is not None:
            logits[:, self._bos_id] = -torch.inf
