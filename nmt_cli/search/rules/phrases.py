"""Phrases of pieces in outputs: those that are banned, and those that are required.

Nothing here needs torch, so that lines are prepared without it.

Legend: Q constraints of a sentence; N states, T different pieces of the phrases; V vocabulary.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from nmt_cli.model.compiled.c_library import Array

Phrase = tuple[int, ...]  # ids of pieces, at least one
# The names of the rules about phrases.
FORCED_PREFIX, REQUIRED, BANNED = "forced_prefix", "required_phrases", "banned_phrases"
NO_REPEATED_NGRAMS = "no_repeated_ngrams"


class Phrases:
    """Different phrases of a sentence; sentences with the same phrases should share one object."""

    def __init__(self, phrases: Iterable[Phrase]) -> None:
        self.phrases = tuple(dict.fromkeys(phrases))
        grouped: dict[int, list[Phrase]] = defaultdict(list)
        for phrase in self.phrases:
            grouped[len(phrase)].append(phrase)
        # Arrays [number of phrases, length].
        self.by_length = {length: np.array(each) for length, each in grouped.items()}


# These limits bound the time of a step, which looks at every piece after every hypothesis.
MOST_PHRASES, MOST_PIECES = 50, 500
# Phrases that overlap need fewer pieces than one after another do. If at most this many constraints
# are not met, all orders are tried, which takes up to 0.1 s.
MOST_ORDERED = 8
ROOT = 0  # the state in which no phrase is begun
ANY_NUMBER = 1 << 14  # more often than a phrase can occur


def are_too_many(phrases: Sequence[Phrase]) -> bool:
    """Return whether a search cannot require all of ``phrases``."""
    return len(phrases) > MOST_PHRASES or sum(map(len, phrases)) > MOST_PIECES


class PhraseForm(NamedTuple):
    """A phrase that meets a constraint."""

    ids: Phrase
    is_text: bool = False  # whether a next piece that continues the last word breaks the phrase


Constraint = tuple[PhraseForm, ...]  # at least one of them must occur


class RequiredPhrases:
    """The constraints of a sentence, as an automaton that reads outputs piece by piece.

    A state is the longest end of an output with which some phrase begins (Aho and Corasick 1975).
    Phrases may overlap. Sentences with the same constraints should share one object.
    """

    def __init__(
        self,
        constraints: Iterable[Constraint],
        continuing: Array | None = None,
        limited: Mapping[Constraint, tuple[int, int]] = MappingProxyType({}),
    ) -> None:
        """Each of ``constraints`` is met once or more; ``limited`` has the least and the most.

        ``continuing`` [V] are the pieces that continue a word; None: there are none. Raises
        ValueError if there are more than ``MOST_PHRASES`` or ``MOST_PIECES``.
        """
        self.constraints = tuple(dict.fromkeys([*constraints, *limited]))
        self.continuing = continuing
        # How often each constraint must be met, and how often it may be, Q.
        of_each = [limited.get(each, (1, ANY_NUMBER)) for each in self.constraints]
        self.least, self.most = np.array(of_each, np.int16).reshape(-1, 2).T
        phrases = [each.ids for constraint in self.constraints for each in constraint]
        if are_too_many(phrases):
            raise ValueError(f"more than {MOST_PHRASES} phrases or {MOST_PIECES} pieces")
        self.pieces = tuple(dict.fromkeys(piece for phrase in phrases for piece in phrase))  # T
        begun = {phrase[:n] for phrase in phrases for n in range(len(phrase) + 1)}
        self._beginnings = sorted(begun, key=len)  # N, the first one is empty
        self._states = {beginning: state for state, beginning in enumerate(self._beginnings)}
        self._columns = {piece: column for column, piece in enumerate(self.pieces)}
        self._note_phrases(self._link())
        self._sums: dict[tuple[int, int], int] = {}

    def _link(self) -> list[int]:
        """Make ``next`` [N, T + 1], the state that follows each state after each piece.

        Returns for each state that of its longest end that is shorter and begins a phrase.
        """
        # The last column is for all pieces that are in no phrase.
        self.next = np.full((len(self._beginnings), len(self.pieces) + 1), ROOT)
        shorter = [ROOT] * len(self._beginnings)
        for state, beginning in enumerate(self._beginnings):
            row = self.next[shorter[state]].copy()
            for piece, column in self._columns.items():
                longer = self._states.get((*beginning, piece))
                if longer is not None:
                    shorter[longer] = int(row[column]) if state != ROOT else ROOT
                    row[column] = longer
            self.next[state] = row
        return shorter

    def _note_phrases(self, shorter: Sequence[int]) -> None:
        """Note which constraints each state meets, and how much of each it has begun."""
        shape = len(self._beginnings), len(self.constraints)
        # The pieces of the shortest form of each constraint, Q.
        self.fewest = np.array([min(len(each.ids) for each in c) for c in self.constraints])
        self.met = np.zeros(shape, np.bool_)  # N Q, which constraints are met at this place
        self.stays_met = np.zeros(shape, np.bool_)  # N Q, also if the last word goes on
        self.begun = np.zeros(shape, np.int64)  # N Q, how many of the fewest pieces it saves
        for number, constraint in enumerate(self.constraints):
            for phrase, is_text in constraint:
                whole = self._states[phrase]
                self.met[whole, number] = True
                self.stays_met[whole, number] |= not is_text
                for length in range(1, len(phrase)):
                    part = self._states[phrase[:length]], number
                    saved = self.fewest[number] - (len(phrase) - length)
                    self.begun[part] = max(self.begun[part], saved)
        for state, end in enumerate(shorter):  # the shorter ends come first
            self.met[state] |= self.met[end]
            self.stays_met[state] |= self.stays_met[end]
            self.begun[state] = np.maximum(self.begun[state], self.begun[end])
        self._met_bits = [_bits(row) for row in self.met]

    def fewest_after(self, tokens: Sequence[int]) -> int:
        """Return the fewest pieces with which an output that begins with ``tokens`` meets all."""
        state, times_met = ROOT, np.zeros(len(self.constraints), np.int16)
        for token in tokens:
            state = int(self.next[state, self._columns.get(token, -1)])
            times_met += self.met[state]
        return self.fewest_from(state, times_met)

    def fewest_from(self, state: int, times_met: Array) -> int:
        """Return the fewest pieces that meet all constraints from ``state`` on.

        ``times_met`` [Q] is how often each is met already. If more than ``MOST_ORDERED`` are not
        met, their phrases are counted as if they did not overlap, and so are those that are left
        when each is met once.
        """
        left = (self.least - times_met).clip(min=0)
        unmet = np.flatnonzero(left).tolist()
        if len(unmet) > MOST_ORDERED:
            return int((self.fewest * left).sum() - self.begun[state, unmet].max())
        more = int((self.fewest * (left - 1).clip(min=0)).sum())
        return more + self._fewest_in_order(state, _bits(left > 0))

    def _fewest_in_order(self, state: int, unmet: int) -> int:
        """Return the fewest pieces over all orders; bit n of ``unmet`` is the n-th constraint."""
        if not unmet:
            return 0
        if (state, unmet) not in self._sums:
            phrases = [
                phrase
                for number, constraint in enumerate(self.constraints)
                if unmet >> number & 1
                for phrase, _ in constraint
            ]
            self._sums[state, unmet] = min(self._fewest_by(each, state, unmet) for each in phrases)
        return self._sums[state, unmet]

    def _fewest_by(self, phrase: Phrase, state: int, unmet: int) -> int:
        """Return the fewest pieces if ``phrase``, which has not occurred, is completed first."""
        end = self._beginnings[state]
        lengths = range(min(len(end), len(phrase) - 1), 0, -1)
        begun = next((n for n in lengths if end[-n:] == phrase[:n]), 0)
        for piece in phrase[begun:]:
            state = int(self.next[state, self._columns[piece]])
            unmet &= ~self._met_bits[state]
        return len(phrase) - begun + self._fewest_in_order(state, unmet)


def _bits(constraints: Array) -> int:
    """Return a number whose n-th bit says whether the n-th of ``constraints`` [Q] is true."""
    return sum(1 << int(number) for number in np.flatnonzero(constraints))
