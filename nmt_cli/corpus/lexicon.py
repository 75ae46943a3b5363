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
from typing import NamedTuple

import numpy as np

from nmt_cli.corpus.binarized import Indices, Numbers, as_bytes, dtype_holding, map_numbers
from nmt_cli.messages.errors import DamagedError


class Lexicon(NamedTuple):
    """Lists of target pieces; threads and forked processes may share it."""

    lengths: Numbers  # S + 1, of the lists
    bounds: Indices  # S + 2, of the lists in ``pieces``
    pieces: Numbers  # N

    @classmethod
    def of(cls, frequent: Sequence[int], by_source: Iterable[Sequence[int]], size: int) -> Lexicon:
        """Return a lexicon of the ``frequent`` pieces and those of each source piece.

        The target has ``size`` pieces (V).
        """
        lists = [np.unique(np.array(each, np.int64)) for each in (frequent, *by_source)]
        dtype = dtype_holding(size)  # so it holds how many there are, too
        return cls._of_lengths(
            np.array([*map(len, lists)], dtype), np.concatenate(lists).astype(dtype)
        )

    @classmethod
    def _of_lengths(cls, lengths: Numbers, pieces: Numbers) -> Lexicon:
        return cls(lengths, np.concatenate([[0], lengths.cumsum(dtype=np.int64)]), pieces)

    @classmethod
    def read(cls, path: Path, source_size: int, target_size: int) -> Lexicon:
        """Return the lexicon in a file of a verified folder, for vocabularies of these sizes.

        Raises DamagedError if it cannot be read or does not fit them.
        """
        numbers = map_numbers(path)
        lexicon = cls._of_lengths(numbers[: source_size + 1], numbers[source_size + 1 :])
        if len(lexicon.lengths) <= source_size or lexicon.bounds[-1] != len(lexicon.pieces):
            raise DamagedError(
                f"{path} is damaged: it has {len(numbers):,} numbers, which are not lists for "
                f"{source_size:,} pieces of the source."
            )
        if (largest := int(lexicon.pieces.max(initial=0))) >= target_size:
            raise DamagedError(
                f"{path} is damaged: it names piece {largest:,}, but the target has "
                f"{target_size:,} pieces."
            )
        return lexicon

    def as_bytes(self) -> bytes:
        """Return the content of its file."""
        return as_bytes(np.concatenate([self.lengths, self.pieces]))

    @property
    def frequent(self) -> Numbers:
        """The most frequent pieces of the target."""
        return self.pieces[: self.bounds[1]]

    def targets_of(self, source: int) -> Numbers:
        """Return the pieces that may translate a piece of the source."""
        return self.pieces[self.bounds[source + 1] : self.bounds[source + 2]]

    def candidates(self, sources: Iterable[int]) -> Indices:
        """Return all pieces that a translation of ``sources`` may have, ascending."""
        lists = [self.frequent, *map(self.targets_of, set(sources))]
        return np.unique(np.concatenate(lists)).astype(np.int64)
