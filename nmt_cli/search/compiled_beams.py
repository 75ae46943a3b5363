"""The state of a beam search that the library of ``--compile`` continues."""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from nmt_cli.model.compiled.kernels import Kernels
from nmt_cli.search.beams import Array, Beams, Candidates, Found, SearchSettings

OF_SLOTS = ("numbers", "lengths", "longest", "beam_sizes", "enough", "num_ended")


class _Beams(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in (*OF_SLOTS, "alphas", "to_beat", "scores", "totals")),
        *((name, ctypes.c_void_p) for name in ("tokens", "parents", "prefixes", "scratch")),
        *((name, ctypes.c_long) for name in ("S", "K", "L")),
        ("eos", ctypes.c_int64),
    )


class _Candidates(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("slots", "scores", "parents", "tokens")),
        *((name, ctypes.c_long) for name in ("B", "C")),
    )


class CompiledBeams(Beams):
    """``Beams`` with hypotheses that a library continues."""

    def __init__(self, num_slots: int, settings: SearchSettings, kernels: Kernels) -> None:
        """Make room for ``num_slots`` sentences; ``kernels`` are the library."""
        super().__init__(num_slots, settings)
        self._functions = kernels.functions
        self._point_to_arrays()

    def keep(self, slots: Sequence[int]) -> None:
        """Drop all other slots."""
        super().keep(slots)
        self._point_to_arrays()

    def advance(self, slots: Array, candidates: Candidates) -> list[Found]:
        """Replace the hypotheses in ``slots`` [B] by ``candidates``, their best continuations.

        Returns the sentences of all slots that are done now.
        """
        self._make_room()
        num_slots, num_candidates = candidates.scores.shape
        scores, parents, tokens = candidates
        # Kept in a variable, because the library reads them by their addresses.
        arrays = [
            np.ascontiguousarray(slots, np.int64),
            np.ascontiguousarray(scores, np.float32),
            *(np.ascontiguousarray(each, np.int64) for each in (parents, tokens)),
        ]
        given = _Candidates(*map(_address, arrays), num_slots, num_candidates)
        both = ctypes.addressof(self._pointers), ctypes.addressof(given)
        ends = np.empty(scores.size, np.int64)
        num_ends = self._functions.find_ends(*both, _address(ends))
        assert num_ends >= 0, candidates  # else their parents are no hypotheses
        assert num_candidates >= self.settings.beam_size, candidates
        for place in ends[:num_ends].tolist():  # before their prefixes are overwritten
            row, rank = divmod(place, num_candidates)
            self._end(int(slots[row]), int(parents[row, rank]), float(scores[row, rank]))
        done = np.empty(len(self.numbers), np.int64)
        num_done = self._functions.advance_beams(*both, _address(done))
        return list(map(self._release, done[:num_done].tolist()))

    def _make_room(self) -> None:
        before = self._prefixes
        super()._make_room()
        if self._prefixes is not before:
            self._point_to_arrays()

    def _point_to_arrays(self) -> None:
        """Store the addresses of all arrays for the library, after one of them was replaced."""
        totals = None if self._history is None else self._history.totals
        self._scratch = np.empty(self._prefixes.shape[1:], np.int32)
        arrays = {
            **{name: getattr(self, name) for name in OF_SLOTS},
            **{"alphas": self.alphas, "to_beat": self._to_beat, "scores": self.scores},
            **{"tokens": self.tokens, "parents": self.parents, "prefixes": self._prefixes},
            "scratch": self._scratch,
        }
        self._pointers = _Beams(
            **{name: _address(array) for name, array in arrays.items()},
            totals=None if totals is None else _address(totals),
            eos=self.settings.eos_id,
            **dict(zip("SKL", self._prefixes.shape, strict=True)),
        )


def _address(array: Any) -> int:
    return int(array.ctypes.data)
