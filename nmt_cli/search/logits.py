"""The logits of a step, as a search uses them without knowing where they are.

Legend: R rows, V vocabulary, S slots, K hypotheses of each (R = S*K, row r is hypothesis r % K of
slot r // K), C candidates.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from nmt_cli.model.compiled.c_library import Array
from nmt_cli.search.sentences import Sampling, Shortlist

Own = TypeVar("Own", bound="Logits")


class Candidates(NamedTuple):
    """The best continuations of each slot's live hypotheses by one token, best first."""

    scores: Array  # B C, log-probabilities; -inf if there are fewer than C
    parents: Array  # B C, the place in the beam of the hypothesis that is continued
    tokens: Array  # B C

    @classmethod
    def nothing(cls, num_slots: int, number: int) -> Candidates:
        """Return room for ``number`` candidates of each slot, with the score of none: -inf."""
        zeros = np.zeros((num_slots, number), np.int64)
        return cls(np.full(zeros.shape, -np.inf, np.float32), zeros, zeros.copy())

    @classmethod
    def best_of(cls, totals: Array, tokens: Array, number: int) -> Candidates:
        """Return the ``number`` best continuations of each slot.

        ``totals`` and ``tokens`` [B, K, any] are the scores and the last tokens of continuations,
        those of each hypothesis in the order in which equal ones are to come.
        """
        num_slots, _, num_continuations = totals.shape
        totals, tokens = totals.reshape(num_slots, -1), tokens.reshape(num_slots, -1)
        if (missing := number - totals.shape[1]) > 0:
            # If the vocabulary is tiny, one hypothesis has fewer continuations than that. What is
            # filled in has probability 0, so it is never continued; its parent means nothing.
            totals = np.pad(totals, ((0, 0), (0, missing)), constant_values=-np.inf)
            tokens = np.pad(tokens, ((0, 0), (0, missing)))
        best = np.argsort(-totals, axis=1, kind="stable")[:, :number]
        slots = np.arange(num_slots)[:, None]
        return cls(totals[slots, best], best // num_continuations, tokens[slots, best])

    def put(self, slots: Array, others: Candidates) -> None:
        """Write ``others``, which may be fewer of each, into ``slots``."""
        for own, other in zip(self, others, strict=True):
            own[slots, : other.shape[1]] = other


class Banned(NamedTuple):
    """Tokens that may not follow: the n-th of ``tokens`` in the n-th of ``rows``, in any order."""

    rows: Array  # N, whole numbers of any width
    tokens: Array  # N, whole numbers too

    @classmethod
    def together(cls, others: Sequence[Banned]) -> Banned | None:
        """Return what any of ``others`` bans; None if there are none."""
        return cls(*map(np.concatenate, zip(*others, strict=True))) if others else None


class Permitted(NamedTuple):
    """The only tokens that may follow in each of some different rows, if they are not banned."""

    rows: Array  # P, whole numbers of any width, as all of these
    bounds: Array  # P+1; those of the n-th row are tokens[bounds[n] : bounds[n + 1]]
    tokens: Array

    @classmethod
    def one_each(cls, rows: Array, tokens: Array) -> Permitted:
        """Permit in each of ``rows`` [P] only its entry of ``tokens`` [P]."""
        return cls(rows, np.arange(len(rows) + 1), tokens)


Restriction = Banned | Permitted


class Logits(Protocol):
    """The logits [R, V] of the next tokens, where the model computed them.

    A log-probability is a logit minus the normalizer of its row. The normalizers are over all V, or
    the row's shortlist, and are those of before any restriction, so a rule never changes the
    probability of the tokens that it allows. Whoever gets the object owns it: ``within``,
    ``restrict`` and ``mean_with`` overwrite the logits.
    """

    @property
    def rows_at_once(self) -> int | None:
        """How many rows to ``select`` at a time; None if the logits of all are in memory."""

    def within(self, shortlists: Sequence[Shortlist]) -> None:
        """Let only the tokens of the shortlist of each slot [S] follow its hypotheses.

        Nothing else was asked for before. The logits of other tokens are -inf from now on, also for
        the normalizers.
        """

    def normalizers(self) -> Array:
        """Return log(sum(exp(row))) [R] in fp32; NaN for a row with a logit that is NaN."""

    def restrict(self, restriction: Restriction) -> None:
        """Set the logits of tokens that may not follow to -inf; those of earlier calls stay so."""

    def best_of_slots(self, scores: Array, number: int) -> Candidates:
        """Return the ``number`` (C) best continuations of each slot.

        ``scores`` [S, K] are the log-probabilities of the hypotheses, fp32; -inf: there is none. A
        total is logit - normalizer + score, in this order, in fp32. Of equal totals, that of an
        earlier hypothesis comes first, then the larger logit, then the lower token. If there are
        fewer than C, totals of -inf follow them.
        """

    def best_of_rows(self, number: int) -> tuple[Array, Array]:
        """Return the greatest log-probabilities [R, C] of each row and their tokens, best first.

        C is ``number``, or V if that is less. Of equal logits, lower tokens come first.
        """

    def log_probabilities(self, rows: Array, tokens: Array) -> Array:
        """Return that of the n-th of ``tokens`` in the n-th of ``rows`` [N]; -inf: restricted."""

    def draw(self, sampling: Sampling, uniforms: Array) -> tuple[Array, Array]:
        """Return a token [R] for each row, drawn by its number in [0, 1), and log-probabilities.

        The log-probabilities [R] are the model's, whatever the temperature.
        """

    def select(self: Own, rows: Array) -> Own:
        """Return a copy of ``rows`` (int64, may repeat), with their restrictions."""

    def mean_with(self: Own, others: Iterable[Own]) -> Own:
        """Return the logarithms of the mean probabilities of these and ``others``.

        The others have as many rows, and are taken one after another, so that few are in memory.
        """
