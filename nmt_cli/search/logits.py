"""The logits of a step, as a search uses them without knowing where they are.

Legend: R rows, V vocabulary, S slots, K hypotheses of each (R = S*K, row r is hypothesis r % K of
slot r // K), C candidates.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from nmt_cli.search.beams import Array, Candidates
from nmt_cli.search.sampling import Sampling

Own = TypeVar("Own", bound="Logits")


class Banned(NamedTuple):
    """Tokens that may not follow: the n-th of ``tokens`` in the n-th of ``rows``, in any order."""

    rows: Array  # N, whole numbers of any width
    tokens: Array  # N, likewise

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


class Restrictions(NamedTuple):
    """What a rule restricts; None: nothing."""

    banned: Banned | None = None
    permitted: Permitted | None = None


NOTHING = Restrictions()


class Logits(Protocol):
    """The logits [R, V] of the next tokens, where the model computed them.

    A log-probability is a logit minus the normalizer of its row. The normalizers are over all V and
    are those of before any restriction, so a rule never changes the probability of the tokens that
    it allows. Whoever gets the object owns it: ``restrict`` and ``mean_with`` overwrite the logits.
    """

    def __len__(self) -> int:
        """Return the number of rows."""
        ...

    def normalizers(self) -> Array:
        """Return log(sum(exp(row))) [R] in fp32; NaN for a row with a logit that is NaN."""
        ...

    def restrict(self, restrictions: Restrictions) -> None:
        """Set the logits of tokens that may not follow to -inf; those of earlier calls stay so."""
        ...

    def best_of_slots(self, scores: Array, number: int) -> Candidates:
        """Return the ``number`` (C) best continuations of each slot.

        ``scores`` [S, K] are the log-probabilities of the hypotheses, fp32; -inf: there is none. A
        total is logit - normalizer + score, in this order, in fp32. Of equal totals, that of an
        earlier hypothesis comes first, then the larger logit, then the lower token. If there are
        fewer than C, totals of -inf follow them.
        """
        ...

    def best_of_rows(self, number: int) -> tuple[Array, Array]:
        """Return the greatest log-probabilities [R, C] of each row and their tokens, best first.

        C is ``number``, or V if that is less. Of equal logits, lower tokens come first.
        """
        ...

    def log_probabilities(self, rows: Array, tokens: Array) -> Array:
        """Return that of the n-th of ``tokens`` in the n-th of ``rows`` [N]; -inf: restricted."""
        ...

    def draw(self, sampling: Sampling, uniforms: Array) -> tuple[Array, Array]:
        """Return a token [R] for each row, drawn by its number in [0, 1), and log-probabilities.

        The log-probabilities [R] are the model's, whatever the temperature.
        """
        ...

    def select(self: Own, rows: Array) -> Own:
        """Return a copy of ``rows`` (int64, may repeat), with their restrictions."""
        ...

    def mean_with(self: Own, others: Iterable[Own]) -> Own:
        """Return the logarithms of the mean probabilities of these and ``others``.

        The others have as many rows, and are taken one after another, so that few are in memory.
        """
        ...
