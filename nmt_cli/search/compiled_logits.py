"""The logits of a step in numpy, which the library for CPUs reads, and the beams it continues.

Legend: R rows, V vocabulary, S slots, K hypotheses of each, C candidates, N tokens.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from nmt_cli.model.compiled.c_library import Array, Library, fields
from nmt_cli.model.compiled.layers import CompiledLayers, OutputLists
from nmt_cli.search.beams import ARRAYS, Beams, hypothesis_of
from nmt_cli.search.logits import Banned, Candidates, Restriction
from nmt_cli.search.sentences import Done, Hypothesis, Sampling, SearchSettings, Shortlist

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
        library: Library,
        normalizers: Array | None = None,
        layers: CompiledLayers | None = None,
    ) -> None:
        """``rows`` [R, V] are logits in fp32 in the order of C, and are overwritten.

        With ``layers`` they are rows [R, D] after the decoder, whose logits are computed when they
        are asked for. ``normalizers`` [R] are given if they are known.
        """
        self._rows, self.c_library = rows, library
        self._normalizers, self._layers = normalizers, layers
        self.lists: OutputLists | None = None

    def within(self, shortlists: Sequence[Shortlist]) -> None:
        """Let only the tokens of the shortlist of each slot [S] follow its hypotheses."""
        self._shortlists = shortlists  # whose tokens the library reads
        self.lists = OutputLists([each.location for each in shortlists])

    @cached_property
    def listed(self) -> Array:
        """The logits [S, K * longest list] of the tokens in shortlists; [K, list] of each slot."""
        lists, (number, width) = self.lists, self._rows.shape
        assert lists is not None
        if self._layers is not None:
            return self._layers.listed_logits(self._rows, lists)
        beam_size = number // len(lists)
        listed = np.empty((len(lists), beam_size * lists.longest), np.float32)
        self.c_library.functions.gather_listed(
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
        self.c_library.functions.spread_listed(
            *(lists.address, listed, len(lists), number // len(lists), values.shape[1]),
            *(values, self._normalizers),
        )
        return values

    @property
    def rows_at_once(self) -> int | None:
        """As many rows as keep the output's product busy; None if all logits are in memory."""
        return None if self._layers is None else self._layers.rows_at_once

    def normalizers(self) -> Array:
        """Return log(sum(exp(row))) [R]; NaN for a row with a logit that is NaN."""
        values = self.values  # with shortlists, the normalizers are computed with them
        if self._normalizers is None:
            self._normalizers = np.empty(len(values), np.float32)
            self.c_library.functions.log_sum_exponentials(values, *values.shape, self._normalizers)
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
        self.c_library.functions.best_continuations(
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
        self.c_library.functions.draw(
            *(self.values, num_rows, width, ctypes.addressof(how)),
            np.ascontiguousarray(uniforms, np.float64),
            *(np.empty(width, np.int64), np.empty(num_blocks)),
            *(np.empty(num_blocks * BLOCK, np.float32), tokens),
        )
        return tokens, self.values[np.arange(num_rows), tokens] - normalizers

    def select(self, rows: Array) -> CompiledLogits:
        """Return a copy of ``rows``, with their restrictions; or of some that are not computed."""
        if self._layers is not None and "values" not in self.__dict__:
            return CompiledLogits(self._rows[rows], self.c_library, layers=self._layers)
        return CompiledLogits(self.values[rows], self.c_library, self.normalizers()[rows])

    def mean_with(self, others: Iterable[CompiledLogits]) -> CompiledLogits:
        """Return logarithms that differ from those of the mean probabilities by a number."""
        normalizers = self.normalizers()
        for other in others:
            assert other.values.shape == self.values.shape, other.values.shape
            self.c_library.functions.add_probabilities(
                *(self.values, normalizers, other.values, other.normalizers(), *self.values.shape)
            )
            normalizers = np.zeros_like(normalizers)
        return CompiledLogits(self.values, self.c_library)


# The arrays of hypotheses that have ended, which the structure has behind ``ARRAYS``.
ENDED = "ended_scores ended_log_probabilities ended_lengths ended_totals ended_prefixes"


class _Beams(ctypes.Structure):
    _fields_ = fields(f"{ARRAYS} {ENDED} scratch", "S K L eos")


class _Candidates(ctypes.Structure):
    _fields_ = fields("slots scores parents tokens", "B C")


class CompiledBeams(Beams):
    """``Beams`` with hypotheses that a library continues."""

    _arrays = (*ARRAYS.split(), *ENDED.split())
    _arrays_of_tokens = ("_prefixes", "_totals", "ended_prefixes", "ended_totals")

    def __init__(self, num_slots: int, settings: SearchSettings, library: Library) -> None:
        """Make room for ``num_slots`` sentences; ``library`` is that for CPUs."""
        super().__init__(num_slots, settings)
        self._functions = library.functions
        shape = self.scores.shape
        self.ended_scores, self.ended_lengths = np.zeros(shape), np.zeros(shape, np.int64)
        self.ended_log_probabilities = np.zeros(shape, np.float32)
        self.ended_prefixes = np.zeros_like(self._prefixes)
        self.ended_totals = None if self._totals is None else np.zeros_like(self._totals)
        self._make_results()

    def keep(self, slots: Sequence[int]) -> None:
        """Drop all other slots."""
        super().keep(slots)
        self._make_results()

    def advance(self, slots: Array, candidates: Candidates) -> list[Done]:
        """Replace the hypotheses in ``slots`` [B] by ``candidates``, their best continuations.

        Returns the sentences of these slots that are done now.
        """
        self.make_room()
        scores, parents, tokens = candidates
        assert scores.shape[1] >= self.settings.beam_size, candidates
        # Kept in a variable, because the library reads them by their addresses.
        arrays: list[Array] = [
            np.ascontiguousarray(slots, np.int64),
            np.ascontiguousarray(scores, np.float32),
            *(np.ascontiguousarray(each, np.int64) for each in (parents, tokens)),
        ]
        given = _Candidates(*map(_address, arrays), *scores.shape)
        number = self._functions.advance_beams(
            self.address, ctypes.addressof(given), _address(self.done)
        )
        assert number >= 0, candidates  # else their parents are no hypotheses
        return self.release(number)

    def release(self, number: int) -> list[Done]:
        """Return the sentences in the first slots of ``done``; their slots are free then."""
        return self._release(self.done[:number].tolist())

    @property
    def address(self) -> int:
        """The address of the structure of these beams."""
        return ctypes.addressof(self._pointers)

    @property
    def address_of_candidates(self) -> int:
        """The address of the structure for candidates of all slots."""
        return ctypes.addressof(self._candidates)

    def ended_in(self, slot: int) -> tuple[Hypothesis, ...]:
        """Return the best hypotheses of a slot that have ended, best first."""
        found = []
        for k in range(min(self.num_ended[slot], self.n_best[slot])):
            at = slot, k, slice(self.ended_lengths[slot, k])
            totals = None if self.ended_totals is None else self.ended_totals[at]
            scores = self.ended_log_probabilities[slot, k], self.ended_scores[slot, k]
            found.append(hypothesis_of(self.ended_prefixes[at], totals, *map(float, scores)))
        return tuple(found)

    def make_room(self, more: int = 1) -> None:
        """Make room for so many more tokens of each hypothesis."""
        before = self._prefixes
        super().make_room(more)
        if self._prefixes is not before:
            self._point_to_arrays()

    def _point_to_arrays(self) -> None:
        """Store the addresses of all arrays for the library, after one of them was replaced."""
        self._scratch = np.empty(self._prefixes.shape[1:], np.int32)
        self._pointers = _Beams(
            *(_address(getattr(self, name)) for name in self._arrays),
            _address(self._scratch),
            *self._prefixes.shape,
            self.settings.eos_id,
        )

    def _make_results(self) -> None:
        """Make room for what the library finds, and store the addresses of all arrays."""
        self._point_to_arrays()
        num_slots, beam_size = self.scores.shape
        shape = num_slots, 2 * beam_size
        self._chosen: list[Array] = [
            np.empty(num_slots, np.int64),
            np.empty(shape, np.float32),
            *(np.empty(shape, np.int64) for _ in range(2)),
        ]
        self._candidates = _Candidates(*map(_address, self._chosen), *shape)
        self.done = np.empty(num_slots, np.int64)  # S, begins with the slots that are done


def _address(array: Array | None) -> int | None:
    return None if array is None else array.ctypes.data
