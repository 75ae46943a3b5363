"""The rules that outputs begin with a prefix, and that banned phrases do not occur in them.

Legend: P phrases of m pieces of all slots; S slots, K beam.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from nmt_cli.model.compiled.kernels import Array
from nmt_cli.search.logits import Banned, Permitted
from nmt_cli.search.rules.phrases import BANNED, FORCED_PREFIX, Phrases
from nmt_cli.search.rules.rule import SlotStates, rows_of


class ForcedPrefix:
    """Permits only the next piece of a prefix until all of it is written.

    ``Sentence.rule_data`` holds the ids of the prefix. The longest output includes the prefix.
    """

    name, needs_data = FORCED_PREFIX, True

    def restriction(self, states: SlotStates) -> Permitted | None:
        """Permit only the prefix in slots that have not written all of theirs."""
        lengths = states.lengths
        forced = [
            (slot, prefix[lengths[slot]])
            for slot, prefix in states.data.items()
            if lengths[slot] < len(prefix)
        ]
        if not forced:
            return None
        slots, tokens = map(np.array, zip(*forced, strict=True))
        rows, each = rows_of(slots, states).ravel(), tokens.repeat(states.beam_size)
        return Permitted.one_each(rows, each)


class SlotPhrases(NamedTuple):
    """Phrases of equal length and the slots of the sentences that have them."""

    slots: Array  # P
    pieces: Array  # P m


def _arrays(data: Mapping[int, Phrases]) -> list[SlotPhrases]:
    slots_with: dict[Phrases, list[int]] = defaultdict(list)
    for slot, phrases in data.items():
        slots_with[phrases].append(slot)
    grouped: dict[int, list[SlotPhrases]] = defaultdict(list)
    for phrases, slots in slots_with.items():
        for length, pieces in phrases.by_length.items():
            each = np.repeat(slots, len(pieces))
            grouped[length].append(SlotPhrases(each, np.tile(pieces, (len(slots), 1))))
    return [SlotPhrases(*map(np.concatenate, zip(*each, strict=True))) for each in grouped.values()]


class BannedPhrases:
    """Bans the last piece of each phrase after its first pieces, at any place.

    ``Sentence.rule_data`` holds ``Phrases``. The rule compares pieces, not text: other pieces that
    join to the same text are allowed.
    """

    name, needs_data = BANNED, True

    def __init__(self) -> None:
        self._data: Mapping[int, Phrases] = {}
        self._phrases: list[SlotPhrases] = []  # of this data, made anew only when sentences change

    def restriction(self, states: SlotStates) -> Banned | None:
        """Ban what would complete a phrase of its sentence."""
        if states.data != self._data:
            self._data, self._phrases = dict(states.data), _arrays(states.data)
        completing = list[Banned]()
        for slots, pieces in self._phrases:
            num_first = pieces.shape[1] - 1
            fits = states.lengths[slots] >= num_first
            slots, pieces = slots[fits], pieces[fits]
            places = states.lengths[slots, None] - np.arange(num_first, 0, -1)  # P m-1
            hypotheses = np.arange(states.beam_size)[:, None]
            ends = states.prefixes[slots[:, None, None], hypotheses, places[:, None]]  # P K m-1
            found, ranks = (ends == pieces[:, None, :-1]).all(axis=2).nonzero()
            rows = slots[found] * states.beam_size + ranks
            completing.append(Banned(rows, pieces[found, -1]))
        return Banned.together(completing)
