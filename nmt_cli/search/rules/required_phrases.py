"""The rule that phrases occur in outputs.

Legend: S slots, K beam, P phrases of m pieces, W places of m pieces in a hypothesis.
"""

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

from nmt_cli.search.beams import Array
from nmt_cli.search.rules.completion import completion_of
from nmt_cli.search.rules.logits_rule import SlotStates
from nmt_cli.search.rules.phrases import PhrasesBySlot, SlotPhrases


class RequiredPhrases:
    """Forbids ``</s>`` until every phrase has occurred, and forces phrases as late as possible.

    ``Sentence.rule_data`` holds ``Phrases``, at most ``MOST_PHRASES`` of them. A piece is forbidden
    if the phrases no longer fit into the longest output after it. Before that the model is free, so
    the rule does not look for the place where a phrase fits best. It compares pieces, not text.
    """

    name = "required_phrases"

    def __init__(self, eos_id: int) -> None:
        self._eos_id = eos_id
        self._phrases = PhrasesBySlot()

    def apply(self, logits: Tensor, states: SlotStates) -> None:
        """Keep the hypotheses of slots with phrases from ending, or losing the room for them."""
        if not states.data:
            return
        missing = np.zeros(states.prefixes.shape[:2], np.int64)  # S K, pieces
        for phrases in self._phrases.of(states.data):
            is_missing = ~_occurs(phrases, states)  # P K
            np.add.at(missing, phrases.slots, phrases.pieces.shape[1] * is_missing)
        rows = torch.from_numpy(np.flatnonzero(missing)).to(logits.device)
        logits[rows, self._eos_id] = -torch.inf
        # Phrases may overlap, so that they need fewer pieces. That is looked at when they must.
        room = (states.longest - states.lengths - 1)[:, None]
        for slot, rank in np.argwhere((missing > 0) & (missing > room)).tolist():
            tokens = states.prefixes[slot, rank, : states.lengths[slot]].tolist()
            completion = completion_of(states.data[slot].phrases)
            allowed = completion.next_pieces(tokens, int(room[slot, 0]))
            if allowed is not None:
                row = logits[slot * states.beam_size + rank]
                kept = row[allowed]
                row.fill_(-torch.inf)
                row[allowed] = kept


def _occurs(phrases: SlotPhrases, states: SlotStates) -> Array:
    """Return whether each phrase occurs in each hypothesis of its slot, [P, K]."""
    length = phrases.pieces.shape[1]
    if states.prefixes.shape[2] < length:
        return np.zeros((len(phrases.slots), states.beam_size), bool)
    windows = sliding_window_view(states.prefixes, length, axis=2)[phrases.slots]  # P K W m
    is_written = np.arange(length, length + windows.shape[2]) <= states.lengths[phrases.slots, None]
    found = (windows == phrases.pieces[:, None, None]).all(axis=3) & is_written[:, None]
    return found.any(axis=2)
