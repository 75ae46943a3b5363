"""A search that sentences may join at any time; its slots grow and shrink with their number."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from nmt_cli.search.beams import Found
from nmt_cli.search.by_length import SearchByLength
from nmt_cli.search.search import REFILLED_SHARE, Search, Sentence

Ticket = TypeVar("Ticket")  # what the caller recognizes a sentence by
# New slots are at least this share of the present ones: adding slots copies the others.
ADDED_SHARE = 1 / 8


@dataclass(frozen=True)
class Done(Generic[Ticket]):
    """A sentence that has left the search, and its hypotheses."""

    ticket: Ticket
    sentence: Sentence
    found: Found


class OpenSearch(Generic[Ticket]):
    """A search that begins with the first sentence and ends when none is left in it.

    It holds as many sentences as fit with the longest one that was in it, because the caches keep
    the room that this one took. When only a long sentence that has left limits their number, no
    sentence joins until the search has ended; the next search begins with empty caches. Not to be
    shared between threads.
    """

    def __init__(
        self,
        start: Callable[[int], Search],
        by_length: SearchByLength,
        tokens_of: Callable[[Sentence], int],
    ) -> None:
        """``start`` begins a search of so many slots; ``by_length`` limits their number."""
        self._start, self.by_length, self._tokens_of = start, by_length, tokens_of
        self.clear()

    @property
    def num_sentences(self) -> int:
        """The number of sentences that are not done."""
        return len(self._inside) + len(self._newcomers)

    def clear(self) -> None:
        """Forget all sentences."""
        self._search: Search | None = None
        self._newcomers: list[tuple[Ticket, Sentence]] = []
        self._inside: dict[int, tuple[Ticket, Sentence]] = {}
        self._longest = 0  # tokens of a slot
        self._is_ending = False

    def offer(self, ticket: Ticket, sentence: Sentence) -> bool:
        """Let ``sentence`` join at the next step; return False if it must wait for others."""
        if self._is_ending:
            return False
        tokens = self._tokens_of(sentence)
        longest = max(self._longest, tokens)
        most = self.by_length.num_slots(longest)
        has_room = most - len(self._inside) >= most * REFILLED_SHARE
        if self.num_sentences and (self.num_sentences >= most or not has_room):
            self._is_ending = self._is_limited_by_the_past(tokens)
            return False
        self._longest = longest
        self._newcomers.append((ticket, sentence))
        return True

    def step(self) -> list[Done[Ticket]]:
        """Make hypotheses one token longer, new ones two; return the sentences that are done."""
        founds = self._joined().step()
        done = [Done(*self._inside[found.number], found) for found in founds]
        for found in founds:
            del self._inside[found.number]
        if not self._inside:
            self.clear()
        return done

    def _is_limited_by_the_past(self, tokens: int) -> bool:
        """Return whether twice as many sentences would fit if the search began anew."""
        present = [sentence for _, sentence in (*self._inside.values(), *self._newcomers)]
        longest = max(tokens, *map(self._tokens_of, present))
        num_slots = self.by_length.num_slots
        return num_slots(longest) >= 2 * num_slots(self._longest)

    def _joined(self) -> Search:
        """Return the search with the newcomers in it, and with few free slots."""
        newcomers = self._newcomers
        if self._search is None:
            self._search = self._start(len(newcomers))
        search, most = self._search, self.by_length.num_slots(self._longest)
        if search.num_slots > most:
            search.drop_free_slots()
        missing = len(newcomers) - search.num_free_slots
        if missing > 0:
            more = math.ceil(search.num_slots * ADDED_SHARE)
            search.add_slots(max(missing, min(more, most - search.num_slots)))
        numbers = search.admit(search.prepare([sentence for _, sentence in newcomers]))
        self._inside.update(zip(numbers, newcomers, strict=True))
        self._newcomers = []
        if search.has_slots_to_drop:
            search.drop_free_slots()
        return search
