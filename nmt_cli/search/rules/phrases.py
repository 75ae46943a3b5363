"""Phrases of pieces, and what it takes to complete all that are required.

Legend: Q phrases of m pieces of a sentence; N states, T different pieces of the phrases and one for
all others, M sets of phrases.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from nmt_cli.search.beams import Array

Phrase = tuple[int, ...]  # ids of pieces, at least one
# The names of the rules about phrases.
FORCED_PREFIX, REQUIRED, BANNED = "forced_prefix", "required_phrases", "banned_phrases"


class Phrases:
    """Different phrases of a sentence; sentences with the same phrases should share one object."""

    def __init__(self, phrases: Iterable[Phrase]) -> None:
        self.phrases = tuple(dict.fromkeys(phrases))
        grouped: dict[int, list[Phrase]] = defaultdict(list)
        for phrase in self.phrases:
            grouped[len(phrase)].append(phrase)
        self.by_length = {length: np.array(each) for length, each in grouped.items()}  # Q m


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
