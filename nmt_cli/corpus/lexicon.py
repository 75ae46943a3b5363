"""The lexicon beside a model: for each source piece, the target pieces that may translate it.

A file of numbers (``binarized.py``), of 2 bytes each if the target has fewer than 65,536 pieces:
first how many pieces each list has, then the lists, one after the other. The first list has the
most frequent pieces of the target, the others those of each source piece, by its id; each is
ascending.

Legend: S pieces of the source, V of the target, N of all lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nmt_cli.corpus.binarized import Indices, as_bytes, dtype_holding, map_numbers
from nmt_cli.messages.errors import DamagedError


class Lexicon:
    """Lists of target pieces. It never changes, so threads may share it."""

    def __init__(
        self, lengths: npt.NDArray[Any], pieces: npt.NDArray[Any], target_size: int
    ) -> None:
        """``lengths`` [S + 1] are those of the lists in ``pieces`` [N], the frequent ones first."""
        self._lengths, self._pieces = lengths, pieces
        self._bounds = [0, *lengths.cumsum(dtype=np.int64).tolist()]  # S + 2
        self._is_frequent = np.zeros(target_size, np.bool_)
        self._is_frequent[self.frequent] = True

    @classmethod
    def of(cls, frequent: Sequence[int], by_source: Iterable[Sequence[int]], size: int) -> Lexicon:
        """Return a lexicon of the ``frequent`` pieces and those of each source piece.

        The target has ``size`` pieces (V).
        """
        lists = [np.unique(np.array(each, np.int64)) for each in (frequent, *by_source)]
        dtype = dtype_holding(size)  # so it holds how many there are, too
        return cls(np.array([*map(len, lists)], dtype), np.concatenate(lists).astype(dtype), size)

    @classmethod
    def read(cls, path: Path, source_size: int, target_size: int) -> Lexicon:
        """Return the lexicon in a file of a verified folder, for vocabularies of these sizes.

        Raises DamagedError if it cannot be read or does not fit them.
        """
        numbers = np.array(map_numbers(path))
        lengths, pieces = numbers[: source_size + 1], numbers[source_size + 1 :]
        if len(lengths) <= source_size or lengths.sum(dtype=np.int64) != len(pieces):
            raise DamagedError(
                f"{path} is damaged: it has {len(numbers):,} numbers, which are not lists for "
                f"{source_size:,} pieces of the source."
            )
        if (largest := int(pieces.max(initial=0))) >= target_size:
            raise DamagedError(
                f"{path} is damaged: it names piece {largest:,}, but the target has "
                f"{target_size:,} pieces."
            )
        return cls(lengths, pieces, target_size)

    def as_bytes(self) -> bytes:
        """Return the content of its file."""
        return as_bytes(np.concatenate([self._lengths, self._pieces]))

    @property
    def frequent(self) -> npt.NDArray[Any]:
        """The most frequent pieces of the target."""
        return self._pieces[: self._bounds[1]]

    def targets_of(self, source: int) -> npt.NDArray[Any]:
        """Return the pieces that may translate a piece of the source."""
        return self._pieces[self._bounds[source + 1] : self._bounds[source + 2]]

    def candidates(self, sources: Iterable[int], further: Sequence[int] = ()) -> Indices:
        """Return the pieces that may translate any of ``sources``, and ``further``, ascending."""
        is_candidate = self._is_frequent.copy()
        lists = map(self.targets_of, set(sources))
        is_candidate[np.concatenate([np.array(further, np.int64), *lists])] = True
        return is_candidate.nonzero()[0]
