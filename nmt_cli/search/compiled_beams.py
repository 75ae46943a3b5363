"""The state of a beam search that the library for CPUs continues."""

import ctypes
from collections.abc import Sequence

import numpy as np

from nmt_cli.model.compiled.kernels import Array, Kernels, fields
from nmt_cli.search.beams import ARRAYS, Beams
from nmt_cli.search.compiled_logits import CompiledLogits
from nmt_cli.search.logits import Candidates
from nmt_cli.search.sentences import Found, SearchSettings


class _Beams(ctypes.Structure):
    _fields_ = fields(f"{ARRAYS} scratch", "S K L eos")


class _Candidates(ctypes.Structure):
    _fields_ = fields("slots scores parents tokens", "B C")


class CompiledBeams(Beams):
    """``Beams`` with hypotheses that a library continues."""

    def __init__(self, num_slots: int, settings: SearchSettings, kernels: Kernels) -> None:
        """Make room for ``num_slots`` sentences; ``kernels`` are the library."""
        super().__init__(num_slots, settings)
        self._functions = kernels.functions
        self._make_results()

    def keep(self, slots: Sequence[int]) -> None:
        """Drop all other slots."""
        super().keep(slots)
        self._make_results()

    def advance(self, slots: Array, candidates: Candidates) -> list[Found]:
        """Replace the hypotheses in ``slots`` [B] by ``candidates``, their best continuations.

        Returns the sentences of all slots that are done now.
        """
        self._make_room()
        scores, parents, tokens = candidates
        # Kept in a variable, because the library reads them by their addresses.
        arrays: list[Array] = [
            np.ascontiguousarray(slots, np.int64),
            np.ascontiguousarray(scores, np.float32),
            *(np.ascontiguousarray(each, np.int64) for each in (parents, tokens)),
        ]
        given = _Candidates(*map(_address, arrays), *scores.shape)
        ends = np.empty(scores.size, np.int64)
        both = ctypes.addressof(self._pointers), ctypes.addressof(given)
        num_ends = self._functions.find_ends(*both, _address(ends))
        assert num_ends >= 0, candidates  # else their parents are no hypotheses
        assert scores.shape[1] >= self.settings.beam_size, candidates
        return self._replace(arrays, given, ends[:num_ends])

    def advance_by(self, slots: Array, logits: CompiledLogits) -> list[Found] | None:
        """Continue the hypotheses in busy ``slots`` by the ``logits`` of their next tokens.

        Applies ``NeverStart`` and ``LongestOutput``, in place if all logits are in memory, then
        takes the best candidates. Returns the sentences that are done now; or None, and replaces
        no hypothesis, if some logits are not numbers.
        """
        self._make_room()
        self._chosen[0][: len(slots)] = slots
        self._candidates.B = len(slots)
        both = ctypes.addressof(self._pointers), ctypes.addressof(self._candidates)
        if logits.lists is not None:
            given = *both, logits.lists.address, logits.listed, self._scratch_of_candidates
            if self._functions.find_listed_candidates(*given) < 0:
                return None
        elif not self._found_in_parts(both, logits):
            return None
        num_ends = self._functions.find_ends(*both, _address(self._ends))
        return self._replace(self._chosen, self._candidates, self._ends[:num_ends])

    def _found_in_parts(self, both: tuple[int, int], logits: CompiledLogits) -> bool:
        """Find the candidates of all slots; return whether all logits are numbers."""
        settings, done = self.settings, 0
        start = -1 if settings.bos_id == settings.eos_id else settings.bos_id
        for part in logits.parts(settings.beam_size):
            number = len(part) // settings.beam_size
            assert done + number <= self._candidates.B, "rows of another search, without a slot"
            given = *both, done, number, part.shape[1], start, part, self._scratch_of_candidates
            if self._functions.find_candidates(*given) < 0:
                return False
            done += number
        assert done == self._candidates.B, done
        return True

    def _replace(
        self, arrays: Sequence[Array], candidates: _Candidates, ends: Array
    ) -> list[Found]:
        """Replace the hypotheses by ``candidates``, which point into ``arrays``.

        Those at ``ends``, as row * C + rank, end. Returns the sentences that are done now.
        """
        slots, scores, parents, _ = arrays
        for place in ends.tolist():  # before their prefixes are overwritten
            row, rank = divmod(place, candidates.C)
            self._end(int(slots[row]), int(parents[row, rank]), float(scores[row, rank]))
        both = ctypes.addressof(self._pointers), ctypes.addressof(candidates)
        num_done = self._functions.advance_beams(*both, self._address_of_done)
        return list(map(self._release, self._done[:num_done].tolist()))

    def _make_room(self) -> None:
        before = self._prefixes
        super()._make_room()
        if self._prefixes is not before:
            self._point_to_arrays()

    def _point_to_arrays(self) -> None:
        """Store the addresses of all arrays for the library, after one of them was replaced."""
        self._scratch = np.empty(self._prefixes.shape[1:], np.int32)
        self._pointers = _Beams(
            *(_address(getattr(self, name)) for name in ARRAYS.split()),
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
        self._scratch_of_candidates = np.empty((2, num_slots + 1, beam_size), np.float32)
        self._ends = np.empty(num_slots * 2 * beam_size, np.int64)
        self._done = np.empty(num_slots, np.int64)
        self._address_of_done = _address(self._done)


def _address(array: Array | None) -> int | None:
    return None if array is None else array.ctypes.data
