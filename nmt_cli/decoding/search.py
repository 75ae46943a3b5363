"""Beam search (section 6.1) over sentence slots, for any ``StepModel``.

Every slot holds one sentence and its beam. When its sentence is done, the slot takes the next one,
so that few rows of a step are wasted. A ``Choice`` decides what continues the hypotheses: the best
tokens, or drawn ones.

Legend: S slots, K beam, R = S*K rows, V vocabulary.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from nmt_cli.decoding.beams import NOT_A_NUMBER, Beams, Candidates, Found, SearchSettings
from nmt_cli.decoding.choice import BestCandidates, Choice
from nmt_cli.decoding.rules.logits_rule import LogitsRule, SlotStates
from nmt_cli.decoding.rules.longest_output import LongestOutput
from nmt_cli.decoding.rules.never_start import NeverStart
from nmt_cli.decoding.top_k import log_normalizers

# Free slots are refilled when they are this share of all, so that sentences are encoded in batches.
REFILLED_SHARE = 1 / 16
# At the end, free slots are dropped when they are this share of all: dropping copies the others.
DROPPED_SHARE = 1 / 8


class Sentence(NamedTuple):
    """A sentence to translate."""

    tokens: Sequence[int]  # with </s>, as the encoder reads them
    longest_output: int  # tokens, without </s>
    rule_data: Mapping[str, Any] = MappingProxyType({})  # data for rules, by the rule's name
    n_best: int | None = None  # how many hypotheses to find; by default those of the settings


class StepInput(NamedTuple):
    """The changes of the hypotheses since the last step, on the CPU."""

    tokens: Tensor  # S K, the newest token of each hypothesis
    parents: Tensor  # S K, the place in the beam of the hypothesis that this token continued
    positions: Tensor  # S, the position of the newest token; the start mark has 0


class StepModel(Protocol):
    """The interface of a model to the search."""

    def reset(self, num_slots: int, beam_size: int) -> None:
        """Empty all caches; make room for ``num_slots`` sentences of ``beam_size`` hypotheses."""
        ...

    def encode(self, sentences: Sequence[Sequence[int]]) -> Sequence[Any]:
        """Return what ``start`` needs of each sentence; many at once take less time each."""
        ...

    def start(self, slots: Sequence[int], encoded: Sequence[Any]) -> None:
        """Put a new sentence into each of ``slots``, as ``encode`` returned it."""
        ...

    def step(self, state: StepInput) -> Tensor:
        """Return the logits [R, V] of the next tokens; the search may overwrite them."""
        ...

    def keep_slots(self, slots: Sequence[int]) -> None:
        """Drop all slots but these; ``slots[i]`` becomes slot i. A slot may be named repeatedly."""
        ...

    def forget(self, slots: Sequence[int]) -> None:
        """Empty the caches of ``slots``: NaN would reach their next sentences, even if masked."""
        ...


class Search:
    """A search in progress: ``admit`` sentences to free slots, ``step`` until they are done.

    A new search resets the model, so an earlier search with the same model must not continue. Not
    to be shared between threads.
    """

    def __init__(
        self,
        model: StepModel,
        num_slots: int,
        settings: SearchSettings,
        rules: Sequence[LogitsRule] = (),
        choice: Choice | None = None,
    ) -> None:
        """Make room for ``num_slots`` sentences at a time.

        ``rules`` apply in addition to the two that every search has: the start mark is forbidden,
        and only the end mark may follow the longest output allowed. Without ``choice`` the best
        candidates are chosen.
        """
        self._model = model
        self._choice = choice if choice is not None else BestCandidates()
        self._beams = Beams(num_slots, settings)
        self._rules: tuple[LogitsRule, ...] = (
            NeverStart(settings.bos_id, settings.eos_id),
            *rules,
            LongestOutput(settings.eos_id),
        )
        self._sentences: list[Sentence | None] = [None] * num_slots
        self._has_rule_data = False
        self._num_admitted = 0
        model.reset(num_slots, settings.beam_size)

    @property
    def num_slots(self) -> int:
        """The number of sentences that can be searched at a time."""
        return len(self._sentences)

    @property
    def num_free_slots(self) -> int:
        """The number of sentences that ``admit`` can take now."""
        return int((~self._beams.is_busy).sum())

    @property
    def has_slots_to_drop(self) -> bool:
        """Whether so many slots are free that it pays to drop them if no sentence needs them."""
        return self.num_free_slots >= max(1, self.num_slots * DROPPED_SHARE)

    @property
    def is_busy(self) -> bool:
        """Whether a sentence is not done yet."""
        return bool(self._beams.is_busy.any())

    def admit(
        self, sentences: Sequence[Sentence], encoded: Sequence[Any] | None = None
    ) -> list[int]:
        """Put each sentence into a free slot; return their numbers, counted from 0 in this search.

        ``encoded`` is what the model has made of them; without it they are encoded now. Raises
        ValueError if there are more sentences than free slots.
        """
        free = np.flatnonzero(~self._beams.is_busy).tolist()
        if len(sentences) > len(free):
            raise ValueError(f"{len(sentences)} sentences, but {len(free)} free slots")
        if not sentences:
            return []
        slots = free[: len(sentences)]
        numbers = list(range(self._num_admitted, self._num_admitted + len(sentences)))
        if encoded is None:
            encoded = self._model.encode([sentence.tokens for sentence in sentences])
        self._model.start(slots, encoded)
        longest = [sentence.longest_output for sentence in sentences]
        n_best = [sentence.n_best or self._beams.settings.n_best for sentence in sentences]
        self._beams.start(slots, numbers, longest, n_best)
        for slot, sentence in zip(slots, sentences, strict=True):
            self._sentences[slot] = sentence
            self._has_rule_data = self._has_rule_data or bool(sentence.rule_data)
        self._num_admitted += len(sentences)
        return numbers

    def step(self) -> list[Found]:
        """Make all hypotheses one token longer; return the sentences that are done.

        A sentence is also done, with an error, if the model's output for it is not a number.
        """
        beams = self._beams
        logits = self._model.step(_step_input(beams))
        normalizers = log_normalizers(logits)  # R, over all V, also tokens that rules forbid
        is_nan = normalizers.view(beams.scores.shape).isnan().any(dim=1).cpu().numpy()
        failing = np.flatnonzero(is_nan & beams.is_busy).tolist()
        if failing:
            self._model.forget(failing)
        failed = [beams.fail(slot, NOT_A_NUMBER) for slot in failing]
        return failed + beams.advance(self._candidates(logits, normalizers))

    def add_slots(self, number: int) -> None:
        """Make room for ``number`` more sentences at a time."""
        # What the new slots hold does not matter until a sentence starts there.
        self._model.keep_slots([*range(self.num_slots), *[0] * number])
        self._beams.add(number)
        self._sentences += [None] * number

    def drop_free_slots(self) -> None:
        """Drop the slots that are free now, so that steps no longer compute their rows."""
        busy = np.flatnonzero(self._beams.is_busy).tolist()
        self._model.keep_slots(busy)
        self._beams.keep(busy)
        self._sentences = [self._sentences[slot] for slot in busy]

    def _candidates(self, logits: Tensor, normalizers: Tensor) -> Candidates:
        """Return continuations of each slot's hypotheses by ``logits`` [R, V]."""
        for rule in self._rules:
            rule.apply(logits, self._states_for(rule))
        states = self._states_for(self._choice)
        return self._choice.candidates(logits, normalizers, self._beams.scores, states)

    def _states_for(self, rule: LogitsRule | Choice) -> SlotStates:
        beams, data = self._beams, {}
        if self._has_rule_data:
            data = {
                slot: sentence.rule_data[rule.name]
                for slot, sentence in enumerate(self._sentences)
                if sentence is not None and rule.name in sentence.rule_data
            }
        return SlotStates(beams.prefixes, beams.lengths, beams.longest, beams.is_busy, data)


def beam_search(
    model: StepModel,
    sentences: Iterable[Sentence],
    num_slots: int,
    settings: SearchSettings,
    rules: Sequence[LogitsRule] = (),
    choice: Choice | None = None,
) -> Iterator[Found]:
    """Yield the hypotheses of each sentence when it is done.

    ``sentences`` is read as needed, ``num_slots`` at a time. ``rules`` and ``choice`` are as in
    ``Search``. Give long sentences first: then the slots that are busy at the end hold short ones.
    """
    waiting = _encoded(model, iter(sentences), num_slots)
    first = list(islice(waiting, num_slots))
    if not first:
        return
    search = Search(model, len(first), settings, rules, choice)
    search.admit(*zip(*first, strict=True))
    more_wait = len(first) == num_slots
    while search.is_busy:
        yield from search.step()
        num_free = search.num_free_slots
        if more_wait and num_free >= search.num_slots * REFILLED_SHARE:
            newcomers = list(islice(waiting, num_free))
            more_wait = len(newcomers) == num_free
            if newcomers:
                search.admit(*zip(*newcomers, strict=True))
        if search.is_busy and not more_wait and search.has_slots_to_drop:
            search.drop_free_slots()


def _encoded(
    model: StepModel, sentences: Iterator[Sentence], at_once: int
) -> Iterator[tuple[Sentence, Any]]:
    """Yield each sentence and what the model makes of it, which it does for many ``at_once``."""
    while group := list(islice(sentences, at_once)):
        yield from zip(group, model.encode([each.tokens for each in group]), strict=True)


def _step_input(beams: Beams) -> StepInput:
    # torch.tensor copies: ``beams`` changes while the device may still be reading.
    return StepInput(*map(torch.tensor, (beams.tokens, beams.parents, beams.lengths)))
