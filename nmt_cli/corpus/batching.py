"""Chooses the pairs of each batch: a pure function of lengths, weights, seed and batch index.

Legend: lengths count the end of sentence; a "side" is source or target.
"""

import bisect
import hashlib
import itertools
import math
import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt_cli.messages.errors import UserError

Lengths = NDArray[np.uint16] | NDArray[np.uint32]
Indices = NDArray[np.int64]

BUCKET_GROWTH = 1.1  # lengths of a bucket differ by at most a tenth
PAIRS_AT_ONCE = 1 << 20  # handled by one numpy call, which bounds temporary memory


class Epoch(NamedTuple):
    """The batches of one pass over the corpus."""

    order: NDArray[np.uint32]  # pair numbers; the pairs of a batch are adjacent
    bounds: Indices  # batch i of the unshuffled order is order[bounds[i]:bounds[i + 1]]
    shuffled: Indices  # the order in which the batches come

    def __len__(self) -> int:
        return len(self.shuffled)

    def batch(self, index: int) -> Indices:
        """Return the pair numbers of batch ``index`` of this epoch."""
        chosen = self.shuffled[index]
        return self.order[self.bounds[chosen] : self.bounds[chosen + 1]].astype(np.int64)


class BatchPlan:
    """Batches of pairs of similar length, at most ``tokens_per_step`` tokens on either side.

    In every epoch, each pair of a corpus of weight w appears floor(w) times, and a random share
    w - floor(w) of its pairs, drawn by ``seed``, appears once more. Batch numbers go on from epoch
    to epoch. Threads may share a plan.

    Raises UserError if a sentence has more than ``tokens_per_step`` tokens, or if the weights leave
    no pair.
    """

    def __init__(
        self,
        source_lengths: Lengths,
        target_lengths: Lengths,
        tokens_per_step: int,
        seed: int,
        corpora: Sequence[tuple[int, float]] | None = None,  # (number of pairs, weight) of each
    ) -> None:
        self._source, self._target = source_lengths, target_lengths
        longest = max(int(source_lengths.max()), int(target_lengths.max()))
        if longest > tokens_per_step:
            raise UserError(
                f"one sentence pair has {longest:,} tokens, more than training.tokens_per_step "
                f"{tokens_per_step:,}; raise it or lower data.max_length."
            )
        self._tokens_per_step, self._seed = tokens_per_step, seed
        self._corpora = corpora if corpora is not None else [(len(source_lengths), 1.0)]
        self._buckets = _buckets(source_lengths, target_lengths)
        self._lock = threading.RLock()
        self._first_batches = [0]  # of each epoch planned so far
        self._epoch_number, self._epoch = 0, self._plan_epoch(0)
        self._first_batches.append(len(self._epoch))

    def batch(self, batch_index: int) -> Indices:
        """Return the pair numbers of the batch; batches of all epochs are counted from 0."""
        with self._lock:
            epoch, index = self.locate(batch_index)
            return self._load(epoch).batch(index)

    def locate(self, batch_index: int) -> tuple[int, int]:
        """Return the epoch of the batch and its number within that epoch, both from 0."""
        with self._lock:
            while batch_index >= self._first_batches[-1]:
                self._count_another_epoch()
        epoch_number = bisect.bisect_right(self._first_batches, batch_index) - 1
        return epoch_number, batch_index - self._first_batches[epoch_number]

    def batches_of(self, epoch: int) -> range:
        """Return the numbers of the epoch's batches, counted through all epochs."""
        with self._lock:
            while epoch + 1 >= len(self._first_batches):
                self._count_another_epoch()
        return range(self._first_batches[epoch], self._first_batches[epoch + 1])

    def _count_another_epoch(self) -> None:
        epoch = self._load(len(self._first_batches) - 1)
        self._first_batches.append(self._first_batches[-1] + len(epoch))

    def _load(self, number: int) -> Epoch:
        if number != self._epoch_number:
            self._epoch_number, self._epoch = number, self._plan_epoch(number)
        return self._epoch

    def _plan_epoch(self, number: int) -> Epoch:
        rng = np.random.Generator(np.random.PCG64([self._seed, number]))
        pairs = self._pairs(rng)
        order = _order_by_bucket(pairs, self._buckets, rng)
        bounds = _bounds_of_batches(order, self._source, self._target, self._tokens_per_step)
        return Epoch(order, bounds, rng.permutation(len(bounds) - 1))

    def _pairs(self, rng: np.random.Generator) -> NDArray[np.uint32] | None:
        """Return the pairs of an epoch, or None if each appears exactly once."""
        if all(weight == 1.0 for _, weight in self._corpora):
            return None
        chosen, first = [], 0
        for size, weight in self._corpora:
            pairs = np.arange(first, first + size, dtype=np.uint32)
            whole = math.floor(weight)
            share = rng.permutation(pairs)[: round((weight - whole) * size)]
            chosen += [np.tile(pairs, whole), share]
            first += size
        pairs = np.concatenate(chosen)
        if not len(pairs):
            raise UserError("the weights of data.train leave no pair; raise one of them.")
        return pairs


def _buckets(source_lengths: Lengths, target_lengths: Lengths) -> NDArray[np.uint8]:
    """Return the length bucket of each pair, by its longer side."""
    bounds = [8]
    while bounds[-1] < 2**32:
        bounds.append(max(bounds[-1] + 1, int(bounds[-1] * BUCKET_GROWTH)))
    longest = max(int(source_lengths.max()), int(target_lengths.max()))
    bucket_of_length = np.searchsorted(bounds, np.arange(longest + 1)).astype(np.uint8)
    buckets = np.empty(len(source_lengths), dtype=np.uint8)
    for start in range(0, len(buckets), PAIRS_AT_ONCE):
        part = slice(start, start + PAIRS_AT_ONCE)
        longer = np.maximum(source_lengths[part], target_lengths[part])
        buckets[part] = bucket_of_length[longer]
    return buckets


def _order_by_bucket(
    pairs: NDArray[np.uint32] | None, buckets: NDArray[np.uint8], rng: np.random.Generator
) -> NDArray[np.uint32]:
    """Return the pairs bucket by bucket, in random order within each."""
    order, ends = _sorted_by_bucket(buckets if pairs is None else buckets[pairs])
    for start, end in itertools.pairwise([0, *ends]):
        rng.shuffle(order[start:end])
    return order if pairs is None else pairs[order]


def _sorted_by_bucket(buckets: NDArray[np.uint8]) -> tuple[NDArray[np.uint32], list[int]]:
    """Return the indices of ``buckets`` in a stable order by bucket, and the end of each bucket.

    This is a counting sort in parts; the result of numpy's would need eight bytes per pair.
    """
    parts = range(0, len(buckets), PAIRS_AT_ONCE)
    counts = np.array([np.bincount(buckets[p : p + PAIRS_AT_ONCE], minlength=256) for p in parts])
    ends = np.cumsum(counts.sum(axis=0))
    free = ends - counts.sum(axis=0)  # the first place of each bucket that is not filled yet
    order = np.empty(len(buckets), dtype=np.uint32)
    for start, of_part in zip(parts, counts, strict=True):
        members = np.argsort(buckets[start : start + PAIRS_AT_ONCE], kind="stable") + start
        for bucket, run in enumerate(np.split(members, np.cumsum(of_part)[:-1])):
            order[free[bucket] : free[bucket] + len(run)] = run
        free += of_part
    return order, ends.tolist()


def _bounds_of_batches(
    order: NDArray[np.uint32], source: Lengths, target: Lengths, tokens_per_step: int
) -> Indices:
    """Return the bounds that cut ``order`` into the longest runs within the limit on both sides."""
    # A part must be longer than a batch, which has at most a pair for each token.
    part_size = max(PAIRS_AT_ONCE, tokens_per_step + 1)
    bounds, start = [0], 0
    while start < len(order):
        part = order[start : start + part_size]
        source_ends = np.cumsum(source[part], dtype=np.int64)
        target_ends = np.cumsum(target[part], dtype=np.int64)
        first, is_last_part = 0, start + len(part) == len(order)
        while first < len(part):
            source_before = source_ends[first - 1] if first else 0
            target_before = target_ends[first - 1] if first else 0
            end = min(
                int(source_ends.searchsorted(source_before + tokens_per_step, side="right")),
                int(target_ends.searchsorted(target_before + tokens_per_step, side="right")),
            )
            if end == len(part) and not is_last_part:
                break  # the run may go on in the next part
            bounds.append(start + end)
            first = end
        start += first
    return np.array(bounds, dtype=np.int64)


def derived_bits(*parts: object) -> int:
    """Return 64 random bits, equal for parts that are equal as text."""
    text = " ".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
