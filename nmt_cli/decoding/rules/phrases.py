"""Phrases of the sentences in the slots as arrays, for rules that look for them in hypotheses.

Legend: P phrases of m pieces of all slots, Q phrases of m pieces of a sentence.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from nmt_cli.decoding.beams import Array

Phrase = tuple[int, ...]  # ids of pieces, at least one


class Phrases:
    """Different phrases of a sentence; sentences with the same phrases should share one object."""

    def __init__(self, phrases: Iterable[Phrase]) -> None:
        self.phrases = tuple(dict.fromkeys(phrases))
        grouped: dict[int, list[Phrase]] = defaultdict(list)
        for phrase in self.phrases:
            grouped[len(phrase)].append(phrase)
        self.by_length = {length: np.array(each) for length, each in grouped.items()}  # Q m


class SlotPhrases(NamedTuple):
    """Phrases of equal length and the slots of the sentences that have them."""

    slots: Array  # P
    pieces: Array  # P m


class PhrasesBySlot:
    """The phrases in all slots; the arrays are made anew only when sentences come or go."""

    def __init__(self) -> None:
        self._data: Mapping[int, Phrases] = {}
        self._arrays: list[SlotPhrases] = []

    def of(self, data: Mapping[int, Phrases]) -> Sequence[SlotPhrases]:
        """Return the phrases of ``data``, which has those of the sentence in each slot."""
        if data != self._data:
            self._data, self._arrays = dict(data), _arrays(data)
        return self._arrays


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
