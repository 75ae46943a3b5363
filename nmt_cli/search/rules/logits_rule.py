"""The interface of rules that decide which tokens may follow the hypotheses of a search.

The rules of a few lines are here too; those about phrases and trees have files of their own.

Slots here are those that hold a sentence, numbered anew at each step: the numbers are not those of
the search, and change when a sentence ends. The first tokens of new sentences are decided before
these have slots. Then the sentences take the place of the slots, and each has one hypothesis, which
is empty (K = 1).

Legend: S slots, K hypotheses of each, R = S*K rows (row r is hypothesis r % K of slot r // K),
V vocabulary, L positions of a hypothesis.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from torch import Tensor

from nmt_cli.search.rules.phrases import NO_REPEATED_NGRAMS


class SlotStates(NamedTuple):
    """The sentences in the slots of a search, as a rule reads them; it must not change them."""

    prefixes: NDArray[Any]  # S K L token ids so far; those beyond the slot's length are meaningless
    lengths: NDArray[Any]  # S tokens so far
    longest: NDArray[Any]  # S tokens allowed before </s>
    data: Mapping[int, Any]  # this rule's entry of Sentence.rule_data, by slot, if there is one

    def of(self, slots: NDArray[Any]) -> "SlotStates":
        """Return the states of some ``slots``, without data."""
        prefixes, lengths, longest, _ = self
        return type(self)(prefixes[slots], lengths[slots], longest[slots], {})

    @property
    def beam_size(self) -> int:
        """The number of hypotheses of a slot."""
        return int(self.prefixes.shape[1])


class LogitsRule(Protocol):
    """Forbids tokens by setting their logits to -inf, in place.

    Log-probabilities are normalized over the whole vocabulary before any rule applies. A rule
    therefore never changes the probability of the tokens that it allows.
    """

    @property
    def name(self) -> str:
        """The key of this rule's data in ``Sentence.rule_data``."""
        ...

    def apply(self, logits: Tensor, states: SlotStates) -> None:
        """Change ``logits`` [R, V] in place; return at once if no slot needs the rule."""
        ...


def rows_of(slots: NDArray[Any], states: SlotStates) -> NDArray[Any]:
    """Return the rows [B, K] of ``slots`` [B]."""
    return slots[:, None] * states.beam_size + np.arange(states.beam_size)


def forbid(logits: Tensor, rows: NDArray[Any], tokens: NDArray[Any]) -> None:
    """Forbid in each of ``rows`` of ``logits`` [R, V] its entry of ``tokens``."""
    if len(rows):
        places = (torch.from_numpy(each.astype(np.int64)) for each in (rows, tokens))
        logits[tuple(each.to(logits.device) for each in places)] = -torch.inf


def allow_only(logits: Tensor, rows: Tensor, token: int | Tensor) -> None:
    """Forbid everything but ``token``, or its entry for the row, in ``rows`` of ``logits``."""
    kept = logits[rows, token]
    logits[rows] = -torch.inf
    logits[rows, token] = kept


class NeverStart:
    """Forbids ``<s>``, unless the model uses ``</s>`` as its start mark too."""

    name = "never_start"

    def __init__(self, bos_id: int, eos_id: int) -> None:
        self._bos_id = bos_id if bos_id != eos_id else None

    def apply(self, logits: Tensor, states: SlotStates) -> None:
        """Forbid the start mark in every row."""
        del states
        if self._bos_id is not None:
            logits.select(1, self._bos_id).fill_(-torch.inf)  # an index takes three times as long


class MinimumLength:
    """Forbids ``</s>`` after hypotheses of fewer than ``min_length`` pieces."""

    name = "minimum_length"

    def __init__(self, min_length: int, eos_id: int) -> None:
        self._min_length, self._eos_id = min_length, eos_id

    def apply(self, logits: Tensor, states: SlotStates) -> None:
        """Keep the hypotheses of slots from ending before their minimum length."""
        slots = np.flatnonzero(states.lengths < self._min_length)
        if len(slots):
            rows = torch.from_numpy(rows_of(slots, states).ravel()).to(logits.device)
            logits[rows, self._eos_id] = -torch.inf


class LongestOutput:
    """Allows only ``</s>`` after hypotheses of the longest length allowed (section 6.1)."""

    name = "longest_output"

    def __init__(self, eos_id: int) -> None:
        self._eos_id = eos_id

    def apply(self, logits: Tensor, states: SlotStates) -> None:
        """End the hypotheses of slots that have reached their longest output."""
        slots = np.flatnonzero(states.lengths >= states.longest)
        if not len(slots):
            return
        rows = torch.from_numpy(rows_of(slots, states).ravel()).to(logits.device)
        allow_only(logits, rows, self._eos_id)


class NoRepeatedNgrams:
    """Forbids each piece with which the last n pieces would occur for a second time.

    ``Sentence.rule_data`` holds n.
    """

    name = NO_REPEATED_NGRAMS

    def apply(self, logits: Tensor, states: SlotStates) -> None:
        """Forbid the pieces that would repeat n pieces of their hypothesis."""
        for n in set(states.data.values()):
            slots = np.array([slot for slot, own in states.data.items() if own == n])
            rows, tokens = _repeating(n, states.of(slots))
            forbid(logits, rows_of(slots, states).ravel()[rows], tokens)


def _repeating(n: int, states: SlotStates) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the rows in which a token would repeat n pieces, and these tokens."""
    lengths = states.lengths
    if states.prefixes.shape[2] < n:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    ngrams = sliding_window_view(states.prefixes, n, axis=2)  # S K W n
    is_written = np.arange(n, n + ngrams.shape[2]) <= lengths[:, None]  # S W
    places = (lengths[:, None] - np.arange(n - 1, 0, -1)).clip(min=0)  # S n-1
    ends = np.take_along_axis(states.prefixes, places[:, None], 2)  # S K n-1
    would_repeat = (ngrams[..., :-1] == ends[:, :, None]).all(axis=3) & is_written[:, None]
    slots, hypotheses, found = would_repeat.nonzero()
    return slots * states.beam_size + hypotheses, ngrams[slots, hypotheses, found, -1]
