"""Ways to cut a text into the pieces of a vocabulary, drawn at random: BPE dropout and unigram.

SentencePiece draws too, but from version 0.2.3 on its draws differ between processes, whatever the
seed, and a training could not be repeated.
"""

import heapq
import math
from array import array
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate, pairwise
from sys import getsizeof
from typing import Generic, NamedTuple, TypeAlias, TypeVar

Draw = Callable[[], float]  # returns another number of [0, 1) each time
# Of memory, for the words that were cut last: 150,000 of European languages, or 80,000 sentences
# without spaces. Each process that samples has its own, and a rank may have one on each core.
BYTES_KEPT = 128 << 20
Key = TypeVar("Key")
Value = TypeVar("Value")


class RecentResults(dict[Key, Value], Generic[Key, Value]):
    """What ``make`` returns for the keys that were used last, in at most ``BYTES_KEPT``.

    ``bytes_of`` returns the bytes of an entry, with 100 for its place here. Threads may share an
    instance: what they count at the same moment may be lost, which is a few entries.
    """

    def __init__(self, make: Callable[[Key], Value], bytes_of: Callable[[Key, Value], int]) -> None:
        super().__init__()
        self._make, self._bytes_of = make, bytes_of
        self._num_bytes = 0
        self._older: dict[Key, Value] = {}  # used before all entries here; given up together

    def __missing__(self, key: Key) -> Value:
        value = self._older.get(key)
        if value is None:
            value = self._make(key)
        num_bytes = self._bytes_of(key, value)
        if self._num_bytes + num_bytes > BYTES_KEPT // 2:
            self._older = dict(self)
            self.clear()
            self._num_bytes = 0
        if num_bytes <= BYTES_KEPT // 2:
            self[key] = value
            self._num_bytes += num_bytes
        return value


class Piece(NamedTuple):
    """A piece of text: its id, and the score that the model gives it."""

    id: int
    score: float


class BpeDropout:
    """BPE that leaves each merge out with the probability ``strength`` (Provilkov et al. 2020)."""

    def __init__(self, pieces: dict[str, Piece], strength: float) -> None:
        self.pieces, self._log_kept = pieces, math.log1p(-strength)
        self._cuts = RecentResults(self._cut_without, _bytes_of_cut)

    def draw(self, text: str, plain: tuple[int, ...], draw: Draw) -> tuple[int, ...]:
        """Return the ids of drawn pieces of ``text``; ``plain`` if no merge was left out.

        The ids ``plain`` stand for ``text`` as well.
        """
        left_out: tuple[int, ...] = ()
        next_merge = 0
        while True:
            ids, num_merges = self._cuts[text, left_out]
            # How many merges are kept before the next one that is not: geometrically distributed.
            next_merge += int(math.log1p(-draw()) / self._log_kept)
            if next_merge >= num_merges:
                return ids if left_out and ids is not None else plain
            left_out += (next_merge,)
            next_merge += 1

    def _cut_without(self, key: "_CutKey") -> "_Cut":
        """Return the ids of the pieces of a text, and how many merges were possible one by one.

        ``key`` is the text and the numbers of the merges that are not made. The ids are None if a
        character that remains alone is not in the vocabulary.
        """
        text, left_out = key
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


_CutKey: TypeAlias = tuple[str, tuple[int, ...]]
_Cut: TypeAlias = tuple[tuple[int, ...] | None, int]


def _bytes_of_cut(key: _CutKey, cut: _Cut) -> int:
    return 250 + getsizeof(key[0]) + 8 * (len(key[1]) + len(cut[0] or ()))


class UnigramSampling:
    """Each way to cut a text, as probable as its pieces are together, to the power ``strength``.

    Kudo 2018, section 3.2, over all ways: forward filtering, backward sampling.
    """

    def __init__(self, pieces: dict[str, Piece], strength: float) -> None:
        self.pieces, self._strength = pieces, strength
        self._lengths = {piece.id: len(text) for text, piece in pieces.items()}
        self._longest = max(self._lengths.values(), default=0)
        self._last_pieces = RecentResults(self._last_pieces_of, _bytes_of_last_pieces)

    def draw(self, text: str, plain: tuple[int, ...], draw: Draw) -> tuple[int, ...]:
        """Return the ids of drawn pieces of ``text``; ``plain`` are ids that BPE may return."""
        del plain
        firsts, last_pieces, up_to = self._last_pieces[text]
        end, ids = len(text), []
        while end:
            first, behind = firsts[end - 1], firsts[end]
            chosen = bisect_right(up_to, draw() * up_to[behind - 1], first, behind)
            ids.append(last_pieces[chosen])
            end -= self._lengths[last_pieces[chosen]]
        return tuple(reversed(ids))

    def _last_pieces_of(self, text: str) -> "_LastPieces":
        """Return the pieces that may be the last of ``text[:end]``, for each ``end``."""
        found = _LastPieces(array("I", [0]), array("I"), array("d"))
        sums = [0.0]  # logarithms of the sum over all ways to cut text[:end]
        for end in range(1, len(text) + 1):
            logs = []
            for start in range(max(0, end - self._longest), end):
                piece = self.pieces.get(text[start:end])
                if piece and sums[start] > -math.inf:
                    found.ids.append(piece.id)
                    logs.append(sums[start] + self._strength * piece.score)
            largest = max(logs, default=-math.inf)
            found.up_to.extend(accumulate(math.exp(log - largest) for log in logs))
            sums.append(largest + math.log(found.up_to[-1]) if logs else -math.inf)
            found.firsts.append(len(found.ids))
        return found


class _LastPieces(NamedTuple):
    """The pieces that may be the last of each beginning of a text, one after the other."""

    firsts: "array[int]"  # those of text[:end] are from firsts[end - 1] to firsts[end]
    ids: "array[int]"
    up_to: "array[float]"  # cumulative weights among the pieces of the same end


def _bytes_of_last_pieces(text: str, found: _LastPieces) -> int:
    return 450 + getsizeof(text) + 4 * len(text) + 12 * len(found.ids)


# Draws one of the ways to cut a text.
SubwordSampling: TypeAlias = BpeDropout | UnigramSampling
# By the numbers of sentencepiece_model.proto.
ALGORITHMS: dict[int, type[SubwordSampling]] = {1: UnigramSampling, 2: BpeDropout}
