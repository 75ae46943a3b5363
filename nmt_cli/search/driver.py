"""Drives searches: sentences join when there is room and leave when they are done.

A sentence that makes a search fail does not affect the others.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from nmt_cli.search.search import BeamSearch
from nmt_cli.search.search_size import SearchSize
from nmt_cli.search.sentences import (
    Cause,
    Done,
    Failure,
    Hypotheses,
    Outcome,
    Sentence,
    ends_the_device,
    failure_of,
    warn_of_passed,
)

# Free slots are refilled when they are this share of all, so that sentences are encoded in batches.
REFILLED_SHARE = 1 / 16
STEPS_OF_TEXT = 16  # in one call; only between calls can a search be stopped, or sentences join
# Sentences that come one by one: encoding stops all others for about a step, whether it is one or
# several. So they join when the steps that they have waited, added up, are this share of the
# sentences inside. Between an eighth and a half, 32 clients' sentences take the same CPU time; a
# quarter takes 7 % fewer steps than a half. Of many inside, steps take long: few are waited for.
WAITED_SHARE = 1 / 4
MOST_WAITED = 3
# Between two steps of all, urgent sentences take steps alone, which cost at most as much as one of
# the others. To read the weights costs as much as so many sentences in a step.
COST_OF_STEP = 2
# Where somebody waits for single sentences, those with so many tokens are completed after a step:
# 100 ms for a large model. While urgent sentences are inside, others are completed after so many
# steps, in which a short sentence is done.
TOKENS_COMPLETED, STEPS_OF_URGENT = 256, 8

Ticket = TypeVar("Ticket")  # what the caller recognizes a sentence by
# Gets the tickets of the sentences inside after a step; may return some that are to leave.
Watch = Callable[[Iterable[Ticket]], Iterable[Ticket] | None]


class Completion(Protocol):
    """Completes the hypotheses of some sentences, such as by the attention of their tokens."""

    def needs(self, sentence: Sentence) -> bool:
        """Return whether ``sentence`` is to be completed."""

    def complete(self, found: list[Hypotheses], sentences: list[Sentence]) -> Iterable[Hypotheses]:
        """Return the hypotheses that were ``found`` for each of ``sentences``, completed."""


@dataclass(eq=False)
class _Entry(Generic[Ticket]):
    """A sentence that was taken, and what the search has prepared of it."""

    ticket: Ticket
    sentence: Sentence
    tokens: int  # of ``size``
    is_urgent: bool = False
    prepared: Any = None


_Waiting = deque[_Entry[Any]]


class _Supply(NamedTuple):
    """Where sentences come from."""

    take: Callable[[], tuple[Any, Any] | None]  # the next one; None: there is none now
    watch: Watch[Any]
    # Whether sentences are prepared and completed together, because nobody waits for a single one.
    is_text: bool
    is_urgent: Callable[[Any], bool]


class Driver(Generic[Ticket]):
    """Runs searches, one at a time. Not to be shared between threads.

    A search begins with the first sentences and ends when none is left in it. If
    ``slots_are_alike``, the caches may keep the room of a long sentence that has left, so the
    longest sentence that was ever in the search limits how many it holds. When twice as many would
    fit into a new search, no sentence joins until this one has ended; the next search begins with
    caches of its own size.

    The sentences of a search that failed are suspects. They are searched again in halves, until
    those that fail alone are found; then the search continues with the others. If memory was full
    but half of the suspects fitted, ``size`` is lowered to that half.
    """

    def __init__(
        self,
        start: Callable[[Sequence[Sentence], int], BeamSearch[Any]],
        size: SearchSize,
        tokens_of: Callable[[Sentence], int],
        *,
        give_up: Callable[[], None] = lambda: None,
        finish: Completion | None = None,
        may_begin_with: Callable[[Sentence, Sentence], bool] = lambda one, other: True,
        prepared_share: float = 1.0,
    ) -> None:
        """``start(sentences, most)`` begins a search for these, which may grow to ``most``.

        Each of them may begin it together with the first by ``may_begin_with``.
        ``tokens_of`` returns how many tokens of ``size`` a sentence takes. ``give_up`` frees the
        memory of a search that failed. ``finish`` gets the sentences of several steps of a text at
        once. Of a text, so many sentences as this share of the slots are prepared ahead.
        """
        self._start, self.size, self._tokens_of = start, size, tokens_of
        self._give_up, self._finish, self._may_begin_with = give_up, finish, may_begin_with
        self._prepared_share = prepared_share
        self.forget_search()

    def run(
        self,
        take: Callable[[], tuple[Ticket, Sentence] | None],
        watch: Watch[Ticket] = lambda inside: None,
        *,
        is_text: bool = False,
        is_urgent: Callable[[Ticket], bool] = lambda ticket: False,
    ) -> Iterator[tuple[Ticket, Outcome]]:
        """Yield the outcome of each sentence when it is done, until none is left and none comes.

        ``take`` returns the next sentence and its ticket, or None if there is none now. After each
        step ``watch`` gets the tickets of the sentences inside, and the sentences whose tickets it
        returns leave without an outcome. A bug is the outcome of the sentence that meets it alone.

        In a text nobody waits for a single sentence, so more of them are prepared and finished at
        once. Long sentences come first, so that fewer slots are busy with long ones at the end.
        Sentences that are urgent by their tickets take further steps alone, up to half of the time.
        """
        self.forget_search()  # in a forked process, one of a thread that does not exist there
        return self._run(deque(), _Supply(take, watch, is_text, is_urgent))

    def most_like(self, sentence: Sentence) -> int:
        """Return how many sentences as long as ``sentence`` are searched at a time."""
        return self.size.num_slots(self._tokens_of(sentence))

    def forget_search(self) -> None:
        """Begin a new search with the next sentence."""
        self._search: BeamSearch[Any] | None = None
        self._inside: dict[int, _Entry[Ticket]] = {}  # by their numbers in the search
        self._found: list[tuple[_Entry[Ticket], Outcome]] = []  # not yielded yet
        # The sentences that the search has taken and that have no outcome, in the order of taking.
        self._suspects: dict[_Entry[Ticket], None] = {}
        self._tokens_of_slot = 0
        self._admits_no_more = False
        self._num_waited = 0  # steps, of all newcomers that could join
        self._num_ahead = 0  # steps of urgent sentences since the last one of all
        self._num_since = 0  # steps since sentences were completed that were not urgent

    def _run(self, waiting: _Waiting, supply: _Supply) -> Iterator[tuple[Ticket, Outcome]]:
        while True:
            self._supply = supply
            try:
                for entry, outcome in self._attempt(waiting):
                    self.size.note_searched(1)
                    yield entry.ticket, outcome
                return
            except Exception as error:
                suspects = list(self._suspects)
                self._give_up()
                if ends_the_device(error) or not suspects:
                    raise  # searching again would not help
                # A failure is kept without its error, unless this is a bug: a traceback would keep
                # the tensors of the failed step in memory.
                failure = failure_of(error) or Failure(Cause.BUG, str(error), error)
            finally:
                self.forget_search()
            met = set(suspects)
            waiting = deque(entry for entry in waiting if entry not in met)
            yield from self._search_again(suspects, failure, supply)

    def _search_again(
        self, suspects: Sequence[_Entry[Ticket]], failure: Failure, supply: _Supply
    ) -> Iterator[tuple[Ticket, Outcome]]:
        was_alone = len(suspects) == 1 and supply.take is _none
        if was_alone:
            yield suspects[0].ticket, failure
            return
        half, all_well = (len(suspects) + 1) // 2, True
        for part in (suspects[:half], suspects[half:]):
            # Some may have been withdrawn while the other half was searched.
            unwanted = set(supply.watch(entry.ticket for entry in part) or ())
            anew = deque(replace(e, prepared=None) for e in part if e.ticket not in unwanted)
            for ticket, outcome in self._run(anew, supply._replace(take=_none)):
                all_well = all_well and not isinstance(outcome, Failure)
                yield ticket, outcome
        if not all_well:
            return
        if failure.bug is not None and len(suspects) > 1:
            warn_of_passed(failure.bug)
        if failure.cause is Cause.NO_MEMORY and len(suspects) > 1:
            tokens = [entry.tokens for entry in suspects]
            mean = -(-sum(tokens) // len(tokens))  # rounded up
            self.size.lower_to(half * (max(tokens) if self.size.slots_are_alike else mean))

    def _attempt(self, waiting: _Waiting) -> Iterator[tuple[_Entry[Ticket], Outcome]]:
        """Search until no sentence waits and none comes; yield each sentence that is done."""
        while True:
            self._fill(waiting)
            search = self._search
            if search is None:
                return
            if self._inside:  # else some are only to be completed
                has_free = len(self._inside) < search.num_slots  # faster than what follows
                if has_free and not self._num_waited and search.has_slots_to_drop:
                    self._leave(search.drop_free_slots())
                self._leave(self._step(search))
            yield from self._finished(search)
            inside = (entry.ticket for entry in self._inside.values())
            if unwanted := self._supply.watch(inside):
                self._withdraw(search, set(unwanted), waiting)
            is_prepared = bool(waiting) and waiting[0].prepared is not None
            is_empty = not (self._inside or self._found)
            if is_empty and (self._admits_no_more or not is_prepared):
                for entry in waiting:
                    entry.prepared = None
                self.forget_search()

    def _step(self, search: BeamSearch[Any]) -> list[Done]:
        """Make a step of all sentences, or of the urgent ones."""
        urgent = [number for number, entry in self._inside.items() if entry.is_urgent]
        cost = (self._num_ahead + 1) * (len(urgent) + COST_OF_STEP)
        if urgent and cost <= len(self._inside) - len(urgent):
            self._num_ahead += 1
            return search.step_of(urgent)
        self._num_ahead = 0
        busy_at_refill = int(search.num_slots * (1 - REFILLED_SHARE))
        enough = max(1, len(self._inside) - busy_at_refill)
        return search.step(STEPS_OF_TEXT if self._supply.is_text else 1, enough)

    def _withdraw(
        self, search: BeamSearch[Any], unwanted: Collection[Ticket], waiting: _Waiting
    ) -> None:
        """Let sentences leave without an outcome, from the search or from ``waiting``."""
        numbers = [n for n, entry in self._inside.items() if entry.ticket in unwanted]
        search.withdraw(numbers)
        leaving = [*map(self._inside.pop, numbers)]
        leaving += [entry for entry, _ in self._found if entry.ticket in unwanted]
        self._found = [each for each in self._found if each[0].ticket not in unwanted]
        for _ in range(len(waiting)):
            entry = waiting.popleft()
            (leaving if entry.ticket in unwanted else waiting).append(entry)
        for entry in leaving:
            self._suspects.pop(entry, None)

    def _fill(self, waiting: _Waiting) -> None:
        """Let sentences join while there is room."""
        supply, search = self._supply, self._search
        num_ahead = search.num_slots if search is not None and supply.is_text else 1
        at_once, is_filled = max(1, int(self._prepared_share * num_ahead)), False
        newcomers: list[_Entry[Ticket]] = []
        num_tokens = sum(entry.tokens for entry in self._inside.values())  # and of newcomers
        while not self._admits_no_more:
            if not waiting:
                while len(waiting) < at_once and (taken := supply.take()) is not None:
                    tokens, is_urgent = self._tokens_of(taken[1]), supply.is_urgent(taken[0])
                    waiting.append(_Entry(*taken, tokens, is_urgent))
            if not waiting:
                break
            if not self._has_room(waiting[0], newcomers, num_tokens):
                is_filled = True
                break
            num_tokens += waiting[0].tokens
            newcomers.append(waiting.popleft())
        if not newcomers:
            self._num_waited = 0  # those that waited have left
            return
        self._num_waited += len(newcomers)
        is_urgent = any(entry.is_urgent for entry in newcomers)  # then those alone count
        stopped = sum(entry.is_urgent >= is_urgent for entry in self._inside.values())
        least_waited = min(MOST_WAITED, WAITED_SHARE * stopped)
        if self._num_waited < least_waited and not is_filled and not supply.is_text:
            waiting.extendleft(reversed(newcomers))
        else:
            self._num_waited = 0
            self._admit(newcomers, waiting)

    def _has_room(
        self, entry: _Entry[Ticket], newcomers: Sequence[_Entry[Ticket]], num_tokens: int
    ) -> bool:
        """Return whether a sentence may join those inside and newcomers, with ``num_tokens``."""
        if self._search is not None and not self._search.accepts(entry.sentence):
            self._admits_no_more = True
            return False
        begins = self._search is None and newcomers
        if begins and not self._may_begin_with(newcomers[0].sentence, entry.sentence):
            return False
        if self.size.slots_are_alike:
            tokens_of_slot = max(self._tokens_of_slot, entry.tokens)
        else:
            num_others = len(self._inside) + len(newcomers)  # the mean is rounded up
            tokens_of_slot = -(-(num_tokens + entry.tokens) // (num_others + 1))
        if self._is_full(tokens_of_slot, len(newcomers)):
            if self.size.slots_are_alike:  # would twice as many fit if the search began anew?
                present = entry, *self._inside.values(), *newcomers
                present_longest = max(each.tokens for each in present)
                most, most_anew = map(self.size.num_slots, (self._tokens_of_slot, present_longest))
                self._admits_no_more = most_anew >= 2 * most
            return False
        self._tokens_of_slot = tokens_of_slot
        return True

    def _is_full(self, tokens_of_slot: int, num_newcomers: int) -> bool:
        """Return whether no sentence may join beside newcomers, if slots have so many tokens."""
        num_inside = len(self._inside)
        if num_inside + num_newcomers == 0:
            return False
        most = self.size.num_slots(tokens_of_slot)
        if self._search is not None:
            most = self._search.slots_within(most)
        is_refilled = most - num_inside >= most * REFILLED_SHARE
        return num_inside + num_newcomers >= most or not is_refilled

    def _admit(self, newcomers: Sequence[_Entry[Ticket]], waiting: _Waiting) -> None:
        """Put ``newcomers`` into slots, or back into ``waiting`` if the search has too few."""
        self._suspects |= dict.fromkeys(newcomers)
        num_slots = self.size.num_slots
        most = num_slots(self._tokens_of_slot)
        if self._search is None:
            comes_no_more = self._supply.take is _none
            sentences = [entry.sentence for entry in newcomers]
            self._search = self._start(sentences, len(sentences) if comes_no_more else most)
        search = self._search
        if search.num_slots > most and self._inside:
            self._leave(search.drop_free_slots())
        missing = len(self._inside) + len(newcomers) - search.num_slots
        if missing > 0 and self._inside:
            self._leave(search.add_slots(missing, most))
        number = search.num_slots - len(self._inside)
        joining = newcomers[:number]
        waiting.extendleft(reversed(newcomers[number:]))
        unprepared = [entry for entry in joining if entry.prepared is None]
        if self._supply.is_text:  # those that wait for this search are prepared together
            unprepared += [
                entry
                for entry in waiting
                if entry.prepared is None and num_slots(entry.tokens) < 2 * most
            ]
        self._suspects |= dict.fromkeys(unprepared)
        of_each = search.prepare([entry.sentence for entry in unprepared])
        for entry, prepared in zip(unprepared, of_each, strict=True):
            entry.prepared = prepared
        numbers = search.admit([entry.prepared for entry in joining])
        for number, entry in zip(numbers, joining, strict=True):
            self._inside[number], entry.prepared = entry, None  # the caches hold it now

    def _leave(self, done: Iterable[Done]) -> None:
        self._found += [(self._inside.pop(number), outcome) for number, outcome in done]

    def _finished(self, search: BeamSearch[Any]) -> list[tuple[_Entry[Ticket], Outcome]]:
        """Return the sentences that are done; in a text, ``finish`` gets many at once."""
        finish, done, self._found = self._finish, self._found, []
        if finish is not None:
            needing = [
                (entry, outcome)
                for entry, outcome in done
                if not isinstance(outcome, Failure) and finish.needs(entry.sentence)
            ]
            entries = {entry for entry, _ in needing}
            done = [each for each in done if each[0] not in entries]
            if self._supply.is_text:
                collects = self._inside and len(needing) < search.num_slots
                number = 0 if collects else len(needing)
            else:
                needing.sort(key=lambda each: not each[0].is_urgent)
                number = self._num_completed_now([entry for entry, _ in needing])
            needing, self._found = needing[:number], list(needing[number:])
            if needing:
                those, found = [each for each, _ in needing], [each for _, each in needing]
                completed = finish.complete(found, [entry.sentence for entry in those])
                done += zip(those, completed, strict=True)
        for entry, _ in done:
            del self._suspects[entry]
        return done

    def _num_completed_now(self, needing: Sequence[_Entry[Ticket]]) -> int:
        """Return how many of these sentences are completed now, the urgent ones first."""
        self._num_since += 1
        if not needing:
            return 0
        if urgent := [entry for entry in needing if entry.is_urgent]:
            needing = urgent
        else:
            waits = any(entry.is_urgent for entry in self._inside.values())
            if waits and self._num_since < STEPS_OF_URGENT:
                return 0
            self._num_since = 0
        tokens = accumulate(len(entry.sentence.tokens) for entry in needing)
        return max(1, sum(number <= TOKENS_COMPLETED for number in tokens))


def _none() -> None:
    """Return no sentence."""
