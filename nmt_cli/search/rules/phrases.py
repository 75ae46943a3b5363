"""The rules that phrases occur in outputs, or do not.

Legend: P phrases of m pieces of all slots, Q phrases of m pieces of a sentence; S slots, K beam, W
places of m pieces in a hypothesis; N states, T different pieces of the phrases and one for all
others, M sets of phrases.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

from nmt_cli.search.beams import Array
from nmt_cli.search.rules.logits_rule import SlotStates, forbid

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


# The table has 2^phrases * pieces entries: 200 KB at most, made in half a second.
MOST_PHRASES, MOST_PIECES = 10, 100
NEVER = 1 << 14


class Completion:
    """Counts the pieces that phrases still need.

    A state is the longest end of an output with which some phrase begins. Together with the set of
    phrases that have occurred it decides how many pieces are missing, so a table of both is made
    once. The sets are numbers; bit n stands for the n-th phrase.
    """

    def __init__(self, phrases: Sequence[Phrase]) -> None:
        if len(phrases) > MOST_PHRASES or sum(map(len, phrases)) > MOST_PIECES:
            raise ValueError(f"more than {MOST_PHRASES} phrases or {MOST_PIECES} pieces")
        begun = {phrase[:n] for phrase in phrases for n in range(len(phrase) + 1)}
        states = {beginning: number for number, beginning in enumerate(sorted(begun, key=len))}
        pieces = dict.fromkeys(piece for phrase in phrases for piece in phrase)
        self._columns = {piece: column for column, piece in enumerate(pieces)}
        self._other = len(pieces)
        self._next = np.zeros((len(states), len(pieces) + 1), np.int64)  # N T
        shorter = [0] * len(states)  # the state of the longest end that is shorter than the state
        for beginning, state in states.items():
            row = self._next[shorter[state]].copy()
            for piece, column in self._columns.items():
                longer = states.get((*beginning, piece))
                if longer is not None:
                    shorter[longer] = int(row[column]) if state else 0
                    row[column] = longer
            self._next[state] = row
        occurred = [
            sum(1 << n for n, phrase in enumerate(phrases) if state[-len(phrase) :] == phrase)
            for state in states
        ]
        self._occurred = np.array(occurred)  # N
        self._missing = self._table(len(phrases))  # M N

    def num_missing(self, tokens: Sequence[int]) -> int:
        """Return how many pieces an output that begins with ``tokens`` still needs at least."""
        return int(self._missing[self._read(tokens)])

    def next_pieces(self, tokens: Sequence[int], room: int) -> list[int] | None:
        """Return the pieces after which ``room`` more suffice; None if any piece may follow."""
        done, state = self._read(tokens)
        following = self._next[state]
        missing = self._missing[done | self._occurred[following], following]  # T
        if missing[self._other] <= room:
            return None
        return [piece for piece, column in self._columns.items() if missing[column] <= room]

    def _read(self, tokens: Sequence[int]) -> tuple[int, int]:
        """Return the phrases that have occurred in ``tokens``, and the state behind them."""
        done = state = 0
        for token in tokens:
            state = int(self._next[state, self._columns.get(token, self._other)])
            done |= int(self._occurred[state])
        return done, state

    def _table(self, num_phrases: int) -> Array:
        missing = np.full((1 << num_phrases, len(self._next)), NEVER, np.int16)
        missing[-1] = 0
        for done in range(len(missing) - 2, -1, -1):
            sets = done | self._occurred[self._next]  # N T
            is_changing = True
            while is_changing:
                before = missing[done].copy()
                missing[done] = (missing[sets, self._next] + 1).min(axis=1).clip(max=NEVER)
                is_changing = bool((missing[done] != before).any())
        return missing


@lru_cache(maxsize=500)
def completion_of(phrases: tuple[Phrase, ...]) -> Completion:
    """Return the ``Completion`` of ``phrases``, at most ``MOST_PHRASES`` and ``MOST_PIECES``."""
    return Completion(phrases)


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
