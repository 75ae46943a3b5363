"""Beam search (section 6.1) over sentence slots, for any ``StepModel``.

Every slot holds one sentence and its beam. When its sentence is done, the slot takes the next one,
so that few rows of a step are wasted. A ``CandidateChoice`` decides what continues the hypotheses:
the best tokens, or drawn ones.

All hypotheses of a sentence begin with the same start mark. So what follows it is computed once,
with the encoding of the sentence, and not in a step, which would compute it K times.

Legend: S slots, K beam, R rows, K for each slot in a step, V vocabulary, B new sentences.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import compress
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

import numpy as np

from nmt_cli.hardware.memory import rounded_up
from nmt_cli.model.compiled.c_library import Array, Library
from nmt_cli.search.beams import Beams, StepInput
from nmt_cli.search.compiled_logits import CompiledBeams
from nmt_cli.search.compiled_model import CompiledTransformer
from nmt_cli.search.logits import Candidates, Logits
from nmt_cli.search.rules import rule as rule_module
from nmt_cli.search.rules.rule import CandidateChoice, Rule, SlotStates
from nmt_cli.search.sentences import NOT_A_NUMBER, Done, SearchSettings, Sentence

# The number of slots is one of so many between two powers of two, because each change of it copies
# the slots. The library computes no free slots, so there they are added up to a power of two, and
# dropped if half of them would do.
STEPS_OF_SLOTS = 4


class SlotModel(Protocol):
    """The interface of a model to any search over slots."""

    @property
    def c_library(self) -> Library | None:
        """The library that computes it, and continues its hypotheses; None: torch computes it."""

    def reset(self, num_slots: int, beam_size: int) -> None:
        """Forget all sentences; make room for ``num_slots`` of ``beam_size`` hypotheses."""

    def encode(
        self, sentences: Sequence[Sequence[int]], start_mark: int
    ) -> tuple[Sequence[Any], Logits]:
        """Return what ``start`` needs of each sentence, and the logits [B, V] of its first token.

        Many sentences at once take less time each.
        """

    def start(self, slots: Sequence[int], encoded: Sequence[Any]) -> None:
        """Put a new sentence into each of ``slots``; its hypotheses consist of the start mark."""

    def keep_slots(self, slots: Sequence[int]) -> None:
        """Drop all slots but these, at least one; ``slots[i]`` becomes slot i.

        A slot may be named repeatedly.
        """

    def forget(self, slots: Sequence[int]) -> None:
        """Empty the caches of ``slots``: NaN would reach their next sentences, even if masked."""


class StepModel(SlotModel, Protocol):
    """A model that computes one step at a time."""

    def step(self, state: StepInput) -> Logits:
        """Return the logits [R, V] of the next tokens: K rows for each slot that takes part.

        It has read ``state`` when it returns.
        """


Model = TypeVar("Model", bound=SlotModel)


class PreparedSentence(NamedTuple):
    """A sentence that a search may admit."""

    sentence: Sentence
    encoded: Any  # by the model
    first: Candidates | None  # for its first token, B = 1; None: the logits are not numbers


class BeamSearch(ABC, Generic[Model]):
    """A search in progress: ``prepare`` sentences, ``admit`` them to free slots, ``step`` on.

    The hypotheses of all slots are on the CPU; a subclass makes the steps. A new search resets the
    model, so an earlier search with the same model must not continue. Not to be shared between
    threads.
    """

    def __init__(
        self,
        model: Model,
        num_slots: int,
        settings: SearchSettings,
        rules: Sequence[Rule] = (),
        choice: CandidateChoice | None = None,
    ) -> None:
        """Make room for ``num_slots`` sentences at a time.

        ``rules`` apply in addition to the two that every search has: the start mark is forbidden,
        and only the end mark may follow the longest output allowed. Without ``choice`` the best
        candidates are chosen.
        """
        self._model = model
        self._num_steps = STEPS_OF_SLOTS if model.c_library is None else 1
        # At most one continuation of each hypothesis ends, so at least K of 2K do not.
        self._choice = choice or rule_module.BestCandidates(2 * settings.beam_size)
        if model.c_library is None:
            self._beams = Beams(num_slots, settings)
        else:
            self._beams = CompiledBeams(num_slots, settings, model.c_library)
        # Whether all sentences need the rules or the choice.
        deciding: list[Rule | CandidateChoice] = [*rules, self._choice]
        self._all_are_restricted = not all(each.needs_data for each in deciding)
        self._rules: tuple[Rule, ...] = (
            rule_module.NeverStart(settings.bos_id, settings.eos_id),
            *rules,
            rule_module.LongestOutput(settings.eos_id),
        )
        self._sentences: list[Sentence | None] = [None] * num_slots
        # For the sentences that were admitted since the last step, by their numbers.
        self._firsts: dict[int, Candidates | None] = {}
        self._num_admitted = 0
        model.reset(num_slots, settings.beam_size)

    @property
    def num_slots(self) -> int:
        """The number of sentences that can be searched at a time."""
        return len(self._sentences)

    @property
    def has_slots_to_drop(self) -> bool:
        """Whether free slots are to be dropped, if no sentence is waiting for them."""
        return rounded_up(self._beams.num_busy, num_steps=self._num_steps) < self.num_slots

    @property
    def is_busy(self) -> bool:
        """Whether a sentence is not done yet."""
        return bool(self._beams.is_busy.any())

    def accepts(self, sentence: Sentence) -> bool:
        """Return whether ``sentence`` may join this search now."""
        del sentence
        return True

    def slots_within(self, most: int) -> int:
        """Return how many of ``most`` slots a search can have."""
        return most

    @abstractmethod
    def step(self, most: int = 1, enough: int = 1) -> list[Done]:
        """Make all hypotheses one token longer, new ones two; return the sentences that are done.

        Up to ``most`` steps may be made, until ``enough`` sentences are done. A sentence is also
        done, with an error, if the model's output for it is not a number.
        """

    def step_of(self, numbers: Sequence[int]) -> list[Done]:
        """Make a step of the sentences with these numbers, if others can rest; else of all."""
        del numbers
        return self.step()

    @abstractmethod
    def add_slots(self, number: int, most: int) -> list[Done]:
        """Make room for ``number`` more sentences, as far as ``most`` slots allow.

        Returns the sentences that are found to be done meanwhile.
        """

    @abstractmethod
    def drop_free_slots(self) -> list[Done]:
        """Drop free slots, so that steps no longer compute their rows; at least one must be busy.

        Returns the sentences that are found to be done meanwhile.
        """

    def prepare(self, sentences: Sequence[Sentence]) -> list[PreparedSentence]:
        """Return the sentences as ``admit`` takes them; many at once take less time each.

        Those with equal tokens, such as the samples of a line, are encoded once.
        """
        if not sentences:
            return []
        places = dict[tuple[int, ...], int]()  # of different tokens
        of_each = [places.setdefault(tuple(each.tokens), len(places)) for each in sentences]
        of_different, logits = self._model.encode(list(places), self._beams.settings.bos_id)
        rows, firsts = np.array(of_each), list[Candidates | None]()
        at_once = logits.rows_at_once or len(rows)
        are_all = len(places) == len(rows) <= at_once
        for first in range(0, len(rows), at_once):
            own = slice(first, first + at_once)
            firsts += self._first(logits if are_all else logits.select(rows[own]), sentences[own])
        encoded = [of_different[place] for place in of_each]
        return list(map(PreparedSentence, sentences, encoded, firsts))

    def _first(self, logits: Logits, sentences: Sequence[Sentence]) -> list[Candidates | None]:
        """Return the first tokens of each sentence by its ``logits``; None if some are NaN."""
        _limit(logits, sentences)
        is_nan = np.isnan(logits.normalizers()).tolist()
        number = len(sentences)
        states = SlotStates(
            prefixes=np.zeros((number, 1, 0), np.int32),
            lengths=np.zeros(number, np.int64),
            longest=np.array([sentence.longest_output for sentence in sentences]),
            data={},
        )
        scores = np.zeros((number, 1), np.float32)
        candidates = self._candidates(logits, scores, states, sentences)
        chosen = [Candidates(*(part[n : n + 1] for part in candidates)) for n in range(number)]
        return [None if nan else own for nan, own in zip(is_nan, chosen, strict=True)]

    def admit(self, prepared: Sequence[PreparedSentence]) -> list[int]:
        """Put each sentence into a free slot; return their numbers, counted from 0 in this search.

        They are prepared by this search, and at most as many as there are free slots.
        """
        if not prepared:
            return []
        slots = np.flatnonzero(~self._beams.is_busy)[: len(prepared)].tolist()
        assert len(slots) == len(prepared), "no free slots"
        numbers = list(range(self._num_admitted, self._num_admitted + len(prepared)))
        self._model.start(slots, [each.encoded for each in prepared])
        sentences = [each.sentence for each in prepared]
        self._beams.start(slots, numbers, sentences)
        for slot, sentence in zip(slots, sentences, strict=True):
            self._sentences[slot] = sentence
        self._firsts |= zip(numbers, (each.first for each in prepared), strict=True)
        self._num_admitted += len(prepared)
        return numbers

    def withdraw(self, numbers: Sequence[int]) -> None:
        """Free the slots of the sentences with these numbers, which have taken part in a step.

        Nothing is found for them.
        """
        self._beams.free(np.flatnonzero(np.isin(self._beams.numbers, numbers)))

    def _begin(self) -> list[Done]:
        """Give the newcomers their first tokens; return the sentences that are done."""
        if not self._firsts:
            return []
        beams = self._beams
        slots = np.flatnonzero(beams.is_busy & (beams.lengths == 0)).tolist()
        firsts = {slot: self._firsts.pop(int(beams.numbers[slot])) for slot in slots}
        done = self._fail([slot for slot, first in firsts.items() if first is None])
        well = {slot: first for slot, first in firsts.items() if first is not None}
        if well:
            candidates = Candidates(*map(np.concatenate, zip(*well.values(), strict=True)))
            done += beams.advance(np.array(list(well)), candidates)
        return done

    def _fail(self, slots: Sequence[int]) -> list[Done]:
        """Free ``slots``, because the output of the model for them is not a number."""
        if slots:
            self._model.forget(slots)
        numbers = self._beams.numbers[slots].tolist()
        self._beams.free(slots)
        return [(number, NOT_A_NUMBER) for number in numbers]

    def _candidates(
        self, logits: Logits, scores: Array, states: SlotStates, sentences: Sequence[Sentence]
    ) -> Candidates:
        """Return continuations of the hypotheses of ``sentences`` by their ``logits``.

        ``states`` of the sentences come without data of rules.
        """
        for rule in self._rules:
            own = _with_data(states, rule, sentences)
            if own.data or not rule.needs_data:
                restriction = rule.restriction(own)
                if restriction is not None and len(restriction.rows):
                    logits.restrict(restriction)
        own = _with_data(states, self._choice, sentences)
        return self._choice.candidates(logits, scores, own)


def _limit(logits: Logits, sentences: Sequence[Sentence]) -> None:
    """Let only the shortlists of ``sentences`` follow their hypotheses, if they have any."""
    shortlists = [each.shortlist for each in sentences if each.shortlist is not None]
    if shortlists:
        logits.within(shortlists)


def _with_data(
    states: SlotStates, rule: Rule | CandidateChoice, sentences: Sequence[Sentence]
) -> SlotStates:
    data = {
        number: sentence.rule_data[rule.name]
        for number, sentence in enumerate(sentences)
        if rule.name in sentence.rule_data
    }
    return states._replace(data=data)


class Search(BeamSearch[StepModel]):
    """A search that decides each step on the CPU before the next one begins."""

    def step(self, most: int = 1, enough: int = 1) -> list[Done]:
        """Make all hypotheses longer, new ones by one token more; return what is done.

        Only the library makes more than one step, if no rule decides what may follow.
        """
        return self._step(None, most, enough)

    def step_of(self, numbers: Sequence[int]) -> list[Done]:
        """Make a step of these sentences; only the library computes some and lets others rest."""
        return self._step(None if self._model.c_library is None else numbers)

    def _step(self, numbers: Sequence[int] | None, most: int = 1, enough: int = 1) -> list[Done]:
        done = self._begin()
        beams, model = self._beams, self._model
        takes_part = beams.is_busy if numbers is None else np.isin(beams.numbers, numbers)
        sentences = self._sentences_in(takes_part)
        if not sentences:
            return done
        # Whether rules or a choice decide what may follow in any of the sentences.
        are_restricted = self._all_are_restricted or any(each.has_rules for each in sentences)
        logits: Logits | None
        if isinstance(model, CompiledTransformer) and not are_restricted:
            assert isinstance(beams, CompiledBeams)
            lists = [None if each is None else each.shortlist for each in self._sentences]
            found, logits = model.make_steps(beams, takes_part, lists, most, enough)
            done += found
            if logits is None:
                return done
            # Some logits are not numbers: what follows finds whose, and fails those sentences.
            sentences = self._sentences_in(takes_part)
        else:
            positions = np.where(takes_part, beams.lengths, 0)
            logits = model.step(StepInput(beams.tokens, beams.parents, positions))
        _limit(logits, sentences)
        slots = np.flatnonzero(takes_part)
        # Of each row, over all V or its shortlist, also tokens that rules ban.
        is_nan = np.isnan(logits.normalizers()).reshape(len(slots), -1).any(axis=1)
        done += self._fail(slots[is_nan].tolist())
        states = SlotStates(beams.prefixes[slots], beams.lengths[slots], beams.longest[slots], {})
        candidates = self._candidates(logits, beams.scores[slots], states, sentences)
        return done + beams.advance(slots, candidates)

    def _sentences_in(self, slots: Array) -> list[Sentence]:
        """Return the sentences of these busy slots [S]."""
        return cast(list[Sentence], list(compress(self._sentences, slots)))

    def add_slots(self, number: int, most: int) -> list[Done]:
        """Make room for ``number`` more sentences, or for some more. Finds nothing."""
        rounded = rounded_up(self.num_slots + number, num_steps=self._num_steps)
        number = max(number, min(rounded, most) - self.num_slots)
        # What the new slots hold does not matter until a sentence starts there.
        self._model.keep_slots([*range(self.num_slots), *[0] * number])
        self._beams.add(number)
        self._sentences += [None] * number
        return []

    def drop_free_slots(self) -> list[Done]:
        """Drop free slots; at least one must be busy. Returns an empty list."""
        is_busy = self._beams.is_busy
        number = rounded_up(self._beams.num_busy, num_steps=STEPS_OF_SLOTS)
        kept = np.sort(np.argsort(~is_busy, kind="stable")[:number]).tolist()
        self._model.keep_slots(kept)
        self._beams.keep(kept)
        self._sentences = [self._sentences[slot] for slot in kept]
        return []
