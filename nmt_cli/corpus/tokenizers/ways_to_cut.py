"""Ways to cut a text into the pieces of a vocabulary, drawn at random: BPE dropout and unigram.

SentencePiece draws too, but from version 0.2.3 on its draws differ between processes, whatever the
seed, and a training could not be repeated.
"""

import heapq
import math
from bisect import bisect_right
from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple, TypeAlias

Draw = Callable[[], float]  # returns another number of [0, 1) each time
WAYS_KEPT = 200_000  # in memory, of the words that were cut last


class Piece(NamedTuple):
    """A piece of text: its id, and the score that the model gives it."""

    id: int
    score: float


class BpeDropout:
    """BPE that leaves each merge out with the probability ``strength`` (Provilkov et al. 2020)."""

    def __init__(self, pieces: dict[str, Piece], strength: float) -> None:
        self.pieces, self._log_kept = pieces, math.log1p(-strength)
        self._cut = lru_cache(WAYS_KEPT)(self._cut_without)

    def draw(self, text: str, plain: tuple[int, ...], draw: Draw) -> tuple[int, ...]:
        """Return the ids of drawn pieces of ``text``; ``plain`` if no merge was left out.

        The ids ``plain`` stand for ``text`` as well.
        """
        left_out: tuple[int, ...] = ()
        next_merge = 0
        while True:
            ids, num_merges = self._cut(text, left_out)
            # How many merges are kept before the next one that is not: geometrically distributed.
            next_merge += int(math.log1p(-draw()) / self._log_kept)
            if next_merge >= num_merges:
                return ids if left_out and ids is not None else plain
            left_out += (next_merge,)
            next_merge += 1

    def _cut_without(
        self, text: str, left_out: tuple[int, ...]
    ) -> tuple[tuple[int, ...] | None, int]:
        """Return the ids of the pieces of ``text``, and how many merges were possible one by one.

        The merges numbered ``left_out`` are not made. The ids are None if a character that remains
        alone is not in the vocabulary.
        """
        parts = list(text)  # a part that was merged into the one on its left is ""
        after, before = list(range(1, len(text) + 1)), list(range(-1, len(text) - 1))
        possible: list[tuple[float, int, int, str]] = []

        def propose(left: int, right: int) -> None:
            if left >= 0 and right < len(parts):
                merged = parts[left] + parts[right]
                if piece := self.pieces.get(merged):
                    heapq.heappush(possible, (-piece.score, left, right, merged))

        for left, right in pairwise(range(len(parts))):
            propose(left, right)
        num_merges = 0
        while possible:
            _, left, right, merged = heapq.heappop(possible)
            if not parts[left] or not parts[right] or parts[left] + parts[right] != merged:
                continue  # one of the two was merged with another meanwhile
            num_merges += 1
            if num_merges - 1 in left_out:
                continue
            parts[left], parts[right] = merged, ""
            after[left] = after[right]
            if after[right] < len(parts):
                before[after[right]] = left
            propose(before[left], left)
            propose(left, after[left])
        found = [self.pieces.get(part) for part in parts if part]
        ids = tuple(piece.id for piece in found if piece)
        return ids if len(ids) == len(found) else None, num_merges


class UnigramSampling:
    """Each way to cut a text, as probable as its pieces are together, to the power ``strength``.

    Kudo 2018, section 3.2, over all ways: forward filtering, backward sampling.
    """

    def __init__(self, pieces: dict[str, Piece], strength: float) -> None:
        self.pieces, self._strength = pieces, strength
        self._longest = max(map(len, pieces), default=0)
        self._last_pieces = lru_cache(WAYS_KEPT)(self._last_pieces_of)

    def draw(self, text: str, plain: tuple[int, ...], draw: Draw) -> tuple[int, ...]:
        """Return the ids of drawn pieces of ``text``; ``plain`` are ids that BPE may return."""
        del plain
        last_pieces = self._last_pieces(text)
        end, ids = len(text), []
        while end:
            last = last_pieces[end]
            chosen = bisect_right(last.up_to, draw() * last.up_to[-1])
            ids.append(last.ids[chosen])
            end = last.starts[chosen]
        return tuple(reversed(ids))

    def _last_pieces_of(self, text: str) -> list["_LastPieces"]:
        """Return the pieces that may be the last of ``text[:end]``, for each ``end``."""
        found = [_LastPieces([], [], [])]
        sums = [0.0]  # logarithms of the sum over all ways to cut text[:end]
        for end in range(1, len(text) + 1):
            starts, ids, logs = [], [], []
            for start in range(max(0, end - self._longest), end):
                piece = self.pieces.get(text[start:end])
                if piece and sums[start] > -math.inf:
                    starts.append(start)
                    ids.append(piece.id)
                    logs.append(sums[start] + self._strength * piece.score)
            largest = max(logs, default=-math.inf)
            up_to = list(accumulate(math.exp(log - largest) for log in logs))
            sums.append(largest + math.log(up_to[-1]) if up_to else -math.inf)
            found.append(_LastPieces(starts, ids, up_to))
        return found


class _LastPieces(NamedTuple):
    starts: list[int]
    ids: list[int]
    up_to: list[float]  # cumulative weights


# Draws one of the ways to cut a text.
WaysToCut: TypeAlias = BpeDropout | UnigramSampling
# By the numbers of sentencepiece_model.proto.
ALGORITHMS: dict[int, type[WaysToCut]] = {1: UnigramSampling, 2: BpeDropout}
