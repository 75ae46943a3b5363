"""The rule that phrases do not occur in outputs.

Legend: K beam, P phrases of m pieces.
"""

import numpy as np
from torch import Tensor

from nmt_cli.decoding.rules.logits_rule import SlotStates, forbid
from nmt_cli.decoding.rules.phrases import PhrasesBySlot


class BannedPhrases:
    """Forbids the last piece of each phrase after its first pieces, at any place.

    ``Sentence.rule_data`` holds ``Phrases``. The rule compares pieces, not text: other pieces that
    join to the same text are allowed.
    """

    name = "banned_phrases"

    def __init__(self) -> None:
        self._phrases = PhrasesBySlot()

    def apply(self, logits: Tensor, states: SlotStates) -> None:
        """Forbid what would complete a phrase of its sentence."""
        if not states.data:
            return
        for slots, pieces in self._phrases.of(states.data):
            num_first = pieces.shape[1] - 1
            fits = states.lengths[slots] >= num_first
            slots, pieces = slots[fits], pieces[fits]
            places = states.lengths[slots, None] - np.arange(num_first, 0, -1)  # P m-1
            hypotheses = np.arange(states.beam_size)[:, None]
            ends = states.prefixes[slots[:, None, None], hypotheses, places[:, None]]  # P K m-1
            found, ranks = (ends == pieces[:, None, :-1]).all(axis=2).nonzero()
            forbid(logits, slots[found] * states.beam_size + ranks, pieces[found, -1])
