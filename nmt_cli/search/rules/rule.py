"""The interface of rules that decide which tokens may follow the hypotheses of a search.

The rules of a few lines are here too; the one of trees has a file of its own.

Slots here are those that hold a sentence, numbered anew at each step: the numbers are not those of
the search, and change when a sentence ends. The first tokens of new sentences are decided before
these have slots. Then the sentences take the place of the slots, and each has one hypothesis, which
is empty (K = 1).

Legend: S slots, K hypotheses of each, R = S*K rows (row r is hypothesis r % K of slot r // K), L
positions of a hypothesis; B some of the slots; P phrases of m pieces of all slots.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from nmt_cli.model.compiled.c_library import Array
from nmt_cli.search.logits import Banned, Candidates, Logits, Permitted, Restriction
from nmt_cli.search.rules.phrases import BANNED, FORCED_PREFIX, NO_REPEATED_NGRAMS, Phrases
from nmt_cli.search.sentences import SAMPLING, Sampling, uniforms


class SlotStates(NamedTuple):
    """The sentences in the slots of a search, as a rule reads them; it must not change them."""

    prefixes: Array  # S K L token ids so far; those beyond the slot's length are meaningless
    lengths: Array  # S tokens so far
    longest: Array  # S tokens allowed before </s>
    data: Mapping[int, Any]  # this rule's entry of Sentence.rule_data, by slot, if there is one

    @property
    def beam_size(self) -> int:
        """The number of hypotheses of a slot."""
        return int(self.prefixes.shape[1])


class Rule(Protocol):
    """Decides from the hypotheses so far which tokens may not follow."""

    name: str  # the key of this rule's data in ``Sentence.rule_data``
    needs_data: bool  # whether it restricts only sentences that have data for it

    def restriction(self, states: SlotStates) -> Restriction | None:
        """Return what may not follow the hypotheses of ``states``; None if all may."""


class CandidateChoice(Protocol):
    """Chooses candidates after all rules have restricted the tokens."""

    name: str  # the key of this choice's data in ``Sentence.rule_data``
    needs_data: bool  # whether it chooses the best candidates for sentences that have none

    def candidates(self, logits: Logits, scores: Array, states: SlotStates) -> Candidates:
        """Return continuations of each slot's hypotheses, whose log-probabilities are ``scores``.

        ``scores`` [S, K] are -inf where there is no hypothesis. May restrict ``logits`` [R, V].
        Returns at least as many as the beam has places; those that do not exist have -inf.
        """


class BestCandidates:
    """The most probable continuations: beam search, or greedy search if the beam is 1."""

    name, needs_data = "best_candidates", True

    def __init__(self, number: int) -> None:
        """Each slot gets ``number`` candidates (C)."""
        self._number = number

    def candidates(self, logits: Logits, scores: Array, states: SlotStates) -> Candidates:
        """Return the best continuations of each slot's hypotheses."""
        del states
        return logits.best_of_slots(scores, self._number)


class SampledCandidates:
    """A drawn continuation of each hypothesis of a sample; the beam must be 1.

    ``Sentence.rule_data`` holds the key of its random numbers. The score of a candidate is the
    model's log-probability, whatever the temperature.
    """

    name, needs_data = SAMPLING, False

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling

    def candidates(self, logits: Logits, scores: Array, states: SlotStates) -> Candidates:
        """Return one continuation of each slot's hypothesis."""
        keys = np.zeros(len(scores), np.uint64)
        keys[list(states.data)] = np.array(list(states.data.values()), np.uint64)
        tokens, values = logits.draw(self._sampling, uniforms(keys, states.lengths))
        parents = np.zeros(scores.shape, np.int64)
        return Candidates(values[:, None] + scores, parents, tokens[:, None])


def rows_of(slots: Array, states: SlotStates) -> Array:
    """Return the rows [B, K] of ``slots`` [B]."""
    return slots[:, None] * states.beam_size + np.arange(states.beam_size)


class NeverStart:
    """Bans ``<s>``, unless the model uses ``</s>`` as its start mark too."""

    name, needs_data = "never_start", False

    def __init__(self, bos_id: int, eos_id: int) -> None:
        self._bos_id = bos_id if bos_id != eos_id else None

    def restriction(self, states: SlotStates) -> Banned | None:
        """Ban the start mark in every row."""
        if self._bos_id is None:
            return None
        num_rows = len(states.lengths) * states.beam_size
        return Banned(np.arange(num_rows), np.full(num_rows, self._bos_id))


class MinimumLength:
    """Bans ``</s>`` after hypotheses of fewer than ``min_length`` pieces."""

    name, needs_data = "minimum_length", False

    def __init__(self, min_length: int, eos_id: int) -> None:
        self._min_length, self._eos_id = min_length, eos_id

    def restriction(self, states: SlotStates) -> Banned:
        """Keep the hypotheses of slots from ending before their minimum length."""
        slots = np.flatnonzero(states.lengths < self._min_length)
        rows = rows_of(slots, states).ravel()
        return Banned(rows, np.full_like(rows, self._eos_id))


class LongestOutput:
    """Permits only ``</s>`` after hypotheses of the longest length allowed (section 6.1)."""

    name, needs_data = "longest_output", False

    def __init__(self, eos_id: int) -> None:
        self._eos_id = eos_id

    def restriction(self, states: SlotStates) -> Permitted:
        """End the hypotheses of slots that have reached their longest output."""
        slots = np.flatnonzero(states.lengths >= states.longest)
        rows = rows_of(slots, states).ravel()
        return Permitted.one_each(rows, np.full_like(rows, self._eos_id))


class NoRepeatedNgrams:
    """Bans each piece with which the last n pieces would occur for a second time.

    ``Sentence.rule_data`` holds n.
    """

    name, needs_data = NO_REPEATED_NGRAMS, True

    def restriction(self, states: SlotStates) -> Banned | None:
        """Ban the pieces that would repeat n pieces of their hypothesis."""
        found = list[Banned]()
        for n in set(states.data.values()):
            slots = np.array([slot for slot, own in states.data.items() if own == n])
            rows, tokens = _repeating(n, states.prefixes[slots], states.lengths[slots])
            found.append(Banned(rows_of(slots, states).ravel()[rows], tokens))
        return Banned.together(found)


def _repeating(n: int, prefixes: Array, lengths: Array) -> tuple[Array, Array]:
    """Return the rows in which a token would repeat n pieces, and these tokens."""
    if prefixes.shape[2] < n:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    ngrams = sliding_window_view(prefixes, n, axis=2)  # S K W n
    is_written = np.arange(n, n + ngrams.shape[2]) <= lengths[:, None]  # S W
    places = (lengths[:, None] - np.arange(n - 1, 0, -1)).clip(min=0)  # S n-1
    ends = np.take_along_axis(prefixes, places[:, None], 2)  # S K n-1
    would_repeat = (ngrams[..., :-1] == ends[:, :, None]).all(axis=3) & is_written[:, None]
    slots, hypotheses, found = would_repeat.nonzero()
    return slots * prefixes.shape[1] + hypotheses, ngrams[slots, hypotheses, found, -1]


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


def _phrases_by_length(data: Mapping[int, Phrases]) -> list[tuple[Array, ...]]:
    """Return, for each length m, the slots [P] of sentences with such phrases, and these [P, m]."""
    slots_with: dict[Phrases, list[int]] = defaultdict(list)
    for slot, phrases in data.items():
        slots_with[phrases].append(slot)
    grouped: dict[int, list[tuple[Array, Array]]] = defaultdict(list)
    for phrases, slots in slots_with.items():
        for length, pieces in phrases.by_length.items():
            each = np.repeat(slots, len(pieces)), np.tile(pieces, (len(slots), 1))
            grouped[length].append(each)
    return [tuple(map(np.concatenate, zip(*each, strict=True))) for each in grouped.values()]


class BannedPhrases:
    """Bans the last piece of each phrase after its first pieces, at any place.

    ``Sentence.rule_data`` holds ``Phrases``. The rule compares pieces, not text: other pieces that
    join to the same text are allowed.
    """

    name, needs_data = BANNED, True

    def __init__(self) -> None:
        self._data: Mapping[int, Phrases] = {}
        self._phrases = list[tuple[Array, ...]]()  # of this data, made anew only when it changes

    def restriction(self, states: SlotStates) -> Banned | None:
        """Ban what would complete a phrase of its sentence."""
        if states.data != self._data:
            self._data, self._phrases = dict(states.data), _phrases_by_length(states.data)
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
