"""The rule that an output begins with given pieces."""

import numpy as np
import torch
from torch import Tensor

from nmt_cli.decoding.rules.logits_rule import SlotStates, allow_only, rows_of


class ForcedPrefix:
    """Allows only the next piece of a prefix until all of it is written.

    ``Sentence.rule_data`` holds the ids of the prefix. The longest output includes the prefix.
    """

    name = "forced_prefix"

    def apply(self, logits: Tensor, states: SlotStates) -> None:
        """Allow only the prefix in slots that have not written all of theirs."""
        lengths = states.lengths
        forced = [
            (slot, prefix[lengths[slot]])
            for slot, prefix in states.data.items()
            if lengths[slot] < len(prefix)
        ]
        if forced:
            slots, tokens = map(np.array, zip(*forced, strict=True))
            rows = torch.from_numpy(rows_of(slots, states).ravel()).to(logits.device)
            each = torch.from_numpy(tokens.repeat(states.beam_size)).to(logits.device)
            allow_only(logits, rows, each)
