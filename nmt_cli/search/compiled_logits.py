"""The logits of a step in numpy, which the library for CPUs reads.

Legend: R rows, V vocabulary, S slots, K hypotheses of each, C candidates, N tokens.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np

from nmt_cli.model.compiled.kernels import Array, Kernels
from nmt_cli.model.compiled.layers import CompiledLayers, OutputLists
from nmt_cli.search.logits import Banned, Candidates, Restriction
from nmt_cli.search.sampling import Sampling
from nmt_cli.search.sentences import Shortlist

BLOCK = 64  # as in sampling.c


class _Sampling(ctypes.Structure):
    _fields_ = (
        ("temperature", ctypes.c_float),
        ("top_k", ctypes.c_long),
        ("top_p", ctypes.c_double),
    )


class CompiledLogits:
    """The ``Logits`` of a model that the library computes."""

    def __init__(
        self,
        rows: Array,
        kernels: Kernels,
        normalizers: Array | None = None,
        layers: CompiledLayers | None = None,
    ) -> None:
        """``rows`` [R, V] are logits in fp32 in the order of C, and are overwritten.

        With ``layers`` they are rows [R, D] after the decoder, whose logits are computed when they
        are asked for. ``normalizers`` [R] are given if they are known.
        """
        self._rows, self.kernels = rows, kernels
        self._normalizers, self._layers = normalizers, layers
        self.lists: OutputLists | None = None

    def within(self, shortlists: Sequence[Shortlist]) -> None:
        """Let only the tokens of the shortlist of each slot [S] follow its hypotheses."""
        self._shortlists = shortlists  # whose tokens the library reads
        self.lists = OutputLists([each.facts for each in shortlists])

    @cached_property
    def listed(self) -> Array:
        """The logits [S, K * longest list] of the tokens in shortlists; [K, list] of each slot."""
        lists, (number, width) = self.lists, self._rows.shape
        assert lists is not None
        if self._layers is not None:
            return self._layers.listed_logits(self._rows, lists)
        beam_size = number // len(lists)
        listed = np.empty((len(lists), beam_size * lists.longest), np.float32)
        self.kernels.functions.gather_listed(
            *(lists.address, self._rows, len(lists), beam_size, width, listed)
        )
        return listed

    @cached_property
    def values(self) -> Array:
        """All logits [R, V]."""
        lists, number = self.lists, len(self._rows)
        if lists is None:
            return self._rows if self._layers is None else self._layers.logits(self._rows)
        listed, values = self.listed, self._rows
        if self._layers is not None:
            values = np.empty((number, self._layers.vocabulary_size), np.float32)
        self._normalizers = np.empty(number, np.float32)
        self.kernels.functions.spread_listed(
            *(lists.address, listed, len(lists), number // len(lists), values.shape[1]),
            *(values, self._normalizers),
        )
        return values

    def parts(self, beam_size: int) -> Iterator[Array]:
        """Yield the logits of some slots after the others, each in the memory of those before."""
        if self._layers is None:
            yield self._rows
            return
        size = max(1, self._layers.rows_at_once // beam_size) * beam_size
        for first in range(0, len(self._rows), size):
            yield self._layers.logits(self._rows[first : first + size])

    def normalizers(self) -> Array:
        """Return log(sum(exp(row))) [R]; NaN for a row with a logit that is NaN."""
        values = self.values  # with shortlists, the normalizers are computed with them
        if self._normalizers is None:
            self._normalizers = np.empty(len(values), np.float32)
            self.kernels.functions.log_sum_exponentials(values, *values.shape, self._normalizers)
        return self._normalizers

    def restrict(self, restriction: Restriction) -> None:
        """Set the logits of tokens that may not follow to -inf."""
        self.normalizers()  # over all tokens
        if isinstance(restriction, Banned):
            self.values[restriction.rows, restriction.tokens] = -np.inf
        else:
            rows, bounds, tokens = restriction
            places = rows.repeat(np.diff(bounds)), tokens
            kept = self.values[places]
            self.values[rows] = -np.inf
            self.values[places] = kept

    def best_of_slots(self, scores: Array, number: int) -> Candidates:
        """Return the ``number`` (C) best continuations of hypotheses with ``scores`` [S, K]."""
        assert scores.size == len(self.values), scores.shape
        found = Candidates.nothing(len(scores), number)
        self.kernels.functions.best_continuations(
            *(self.values, self.normalizers(), np.ascontiguousarray(scores, np.float32)),
            *(*scores.shape, self.values.shape[1], number),
            *(*found, np.empty(number, np.float32)),
        )
        return found

    def best_of_rows(self, number: int) -> tuple[Array, Array]:
        """Return the greatest log-probabilities [R, C] of each row and their tokens."""
        number = min(number, self.values.shape[1])
        best = self.best_of_slots(np.zeros((len(self.values), 1), np.float32), number)
        return best.scores, best.tokens

    def log_probabilities(self, rows: Array, tokens: Array) -> Array:
        """Return that of the n-th of ``tokens`` in the n-th of ``rows`` [N]."""
        return self.values[rows, tokens] - self.normalizers()[rows]

    def draw(self, sampling: Sampling, uniforms: Array) -> tuple[Array, Array]:
        """Return a token [R] for each row, drawn by its number in [0, 1), and log-probabilities."""
        num_rows, width = self.values.shape
        assert uniforms.shape == (num_rows,), uniforms.shape
        normalizers = self.normalizers()
        how = _Sampling(sampling.fp32_temperature, min(sampling.top_k or 0, width), sampling.top_p)
        num_blocks = -(-width // BLOCK)
        tokens = np.empty(num_rows, np.int64)
        self.kernels.functions.draw(
            *(self.values, num_rows, width, ctypes.addressof(how)),
            np.ascontiguousarray(uniforms, np.float64),
            *(np.empty(width, np.int64), np.empty(num_blocks)),
            *(np.empty(num_blocks * BLOCK, np.float32), tokens),
        )
        return tokens, self.values[np.arange(num_rows), tokens] - normalizers

    def select(self, rows: Array) -> CompiledLogits:
        """Return a copy of ``rows``, with their restrictions; or of some that are not computed."""
        if self._layers is not None and "values" not in self.__dict__:
            return CompiledLogits(self._rows[rows], self.kernels, layers=self._layers)
        return CompiledLogits(self.values[rows], self.kernels, self.normalizers()[rows])

    def mean_with(self, others: Iterable[CompiledLogits]) -> CompiledLogits:
        """Return logarithms that differ from those of the mean probabilities by a number."""
        normalizers = self.normalizers()
        for other in others:
            assert other.values.shape == self.values.shape, other.values.shape
            self.kernels.functions.add_probabilities(
                *(self.values, normalizers, other.values, other.normalizers(), *self.values.shape)
            )
            normalizers = np.zeros_like(normalizers)
        return CompiledLogits(self.values, self.kernels)
