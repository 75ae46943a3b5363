"""Chooses the pairs of each batch: a pure function of lengths, weights, seed and batch index.

Legend: lengths count the end of sentence; a "side" is source or target.
"""

import bisect
import hashlib
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt_cli.corpus.binarized import Indices, leave_memory
from nmt_cli.corpus.epoch_pairs import Corpora, EpochPairs, EpochSlice, refuse_wrong_weights
from nmt_cli.corpus.node_memory import Arrays, NodeMemory, Order
from nmt_cli.corpus.tokenizers.normalization import SIDES
from nmt_cli.messages.errors import UserError

Lengths = NDArray[np.uint16] | NDArray[np.uint32]

BUCKET_GROWTH = 1.1  # lengths of a bucket differ by at most a tenth
PAIRS_AT_ONCE = 1 << 18  # handled by one numpy call, which bounds temporary memory
PARTS_IN_MEMORY = 16  # of so many pairs, at most, if the lengths are in a file
# The last batches of an epoch are copied, so that its memory is free when the first rank plans the
# next epoch. Ranks are fewer batches apart, because each step waits for all of them.
LAST_BATCHES = 8
EPOCHS_OF_A_STAGE = 1 << 40  # more than a training has


class Epoch(NamedTuple):
    """The batches of one pass over the corpus."""

    pairs: EpochPairs
    order: Order  # places in the list of ``pairs``; those of a batch are adjacent
    bounds: Indices  # batch i of the unshuffled order is order[bounds[i]:bounds[i + 1]]
    shuffled: Indices  # the order in which the batches come
    first: int = 0  # batches before it are left out

    def __len__(self) -> int:
        return self.first + len(self.shuffled)

    def batch(self, index: int) -> EpochSlice:
        """Return the pairs of batch ``index`` of this epoch."""
        return self.pairs.at(self._places(index))

    def last(self, number: int) -> "Epoch":
        """Return the last ``number`` batches of this epoch, in memory of their own."""
        first = max(0, len(self) - number)
        batches = [self._places(index) for index in range(first, len(self))]
        bounds = np.cumsum([0, *map(len, batches)])
        order = np.concatenate(batches).astype(np.uint32)
        return Epoch(self.pairs, order, bounds, np.arange(len(batches)), first)

    def _places(self, index: int) -> Indices:
        chosen = self.shuffled[index - self.first]
        return self.order[self.bounds[chosen] : self.bounds[chosen + 1]].astype(np.int64)


def _new_order(num_pairs: int) -> Order:
    return np.empty(num_pairs, dtype=np.uint32)


class BatchPlan:
    """Batches of pairs of similar length, at most ``tokens_per_step`` tokens on either side.

    The pairs of an epoch are those of ``EpochPairs``, by the weights of the stage. Batch numbers go
    on from epoch to epoch and from stage to stage. An epoch is planned when one of its batches is
    needed. It takes 4 bytes of memory for each of its pairs, and while it is planned, 4 more for
    each in the largest bucket, which often has a tenth of them. Threads may share a plan.

    Raises UserError if a sentence has more than ``tokens_per_step`` tokens, or if the weights leave
    no pair or too many.
    """

    def __init__(
        self,
        source_lengths: Lengths,
        target_lengths: Lengths,
        tokens_per_step: int,
        seed: int,
        corpora: Corpora | None = None,
    ) -> None:
        self._source, self._target = source_lengths, target_lengths
        self._longest = max(int(source_lengths.max()), int(target_lengths.max()))
        leave_memory(source_lengths, target_lengths)
        self._bucket_of_length = _bucket_of_length(self._longest)
        sides = zip(SIDES, (source_lengths, target_lengths), strict=True)
        self._of_a_pair = np.dtype([(name, lengths.dtype) for name, lengths in sides])
        if self._longest > tokens_per_step:
            raise UserError(
                f"one sentence pair has {self._longest:,} tokens, more than "
                f"training.tokens_per_step {tokens_per_step:,}; raise it or lower data.max_length."
            )
        self._tokens_per_step, self._seed = tokens_per_step, seed
        self._corpora = corpora if corpora is not None else [(len(source_lengths), 1.0)]
        self._stage = 0
        refuse_wrong_weights(self._corpora, "data.train")
        self._lock = threading.RLock()
        # The first batch of ``_first_epoch``, and of each epoch after it that was counted so far.
        self._first_epoch, self._first_batches = 0, [0]
        self._planned: tuple[int, Epoch] | None = None  # the epoch that was used last
        self._memory: NodeMemory | None = None

    def plan_in(self, memory: NodeMemory) -> None:
        """Plan the next epochs together with the processes that share ``memory``."""
        with self._lock:
            self._memory = memory

    def begin_at(self, epoch: int, first_batch: int) -> None:
        """Number the batches of ``epoch`` from ``first_batch`` on, without planning earlier epochs.

        Afterwards the plan has no batches of earlier epochs.
        """
        with self._lock:
            self._first_epoch, self._first_batches = epoch, [first_batch]

    def begin_stage(self, stage: int, corpora: Corpora, epoch: int, first_batch: int) -> None:
        """Plan ``corpora`` with other weights, from the beginning of ``epoch`` on.

        Its batches are numbered from ``first_batch`` on, and the plan has no earlier ones.
        """
        with self._lock:
            self._stage, self._corpora, self._planned = stage, corpora, None
            self.begin_at(epoch, first_batch)

    def batch(self, batch_index: int) -> Indices:
        """Return the pair numbers of the batch; batches of all epochs are counted from 0."""
        return self.listed(batch_index).pairs

    def listed(self, batch_index: int) -> EpochSlice:
        """Return the pair numbers of the batch, and which of its copies in the epoch each is."""
        with self._lock:
            number, index = self.locate(batch_index)
            epoch = self._load(number, index)
            if epoch.first == 0 and index >= len(epoch) - LAST_BATCHES:
                epoch = epoch.last(LAST_BATCHES)
                self._planned = number, epoch
                if self._memory is not None:
                    self._memory.give_up()
            return epoch.batch(index)

    def locate(self, batch_index: int) -> tuple[int, int]:
        """Return the epoch of the batch and its number within that epoch, both from 0."""
        with self._lock:
            while batch_index > self._first_batches[-1]:
                self._count_another_epoch()
        place = bisect.bisect_right(self._first_batches, batch_index) - 1
        return self._first_epoch + place, batch_index - self._first_batches[place]

    def is_before(self, batch_index: int, epoch: int) -> bool:
        """Return whether the batch is one of the epochs before ``epoch``, which is not planned."""
        with self._lock:
            place = max(0, epoch - self._first_epoch)
            while batch_index >= self._first_batches[-1] and len(self._first_batches) <= place:
                self._count_another_epoch()
            return len(self._first_batches) <= place or batch_index < self._first_batches[place]

    def epoch_of(self, batch_index: int) -> tuple[int, int]:
        """Return the epoch of the batch and the first batch of that epoch."""
        epoch, index = self.locate(batch_index)
        return epoch, batch_index - index

    def batches_of(self, epoch: int) -> range:
        """Return the numbers of the epoch's batches, counted through all epochs."""
        place = epoch - self._first_epoch
        with self._lock:
            while place + 1 >= len(self._first_batches):
                self._count_another_epoch()
        return range(self._first_batches[place], self._first_batches[place + 1])

    def _count_another_epoch(self) -> None:
        number = self._first_epoch + len(self._first_batches) - 1
        num_batches = len(self._load(number, 0))
        self._first_batches.append(self._first_batches[-1] + num_batches)

    def _load(self, number: int, index: int) -> Epoch:
        """Return an epoch, with its batches from ``index`` on."""
        if self._planned is None or self._planned[0] != number or self._planned[1].first > index:
            self._planned = None  # its memory is free before the next epoch takes as much
            plan = partial(self._plan_epoch, number)
            # A rank may read ahead in an epoch that others begin in the next stage.
            name = self._stage * EPOCHS_OF_A_STAGE + number
            arrays = plan() if self._memory is None else self._memory.epoch(name, plan)
            self._planned = number, Epoch(self._pairs_of(number), *arrays)
        return self._planned[1]

    def _pairs_of(self, number: int) -> EpochPairs:
        return EpochPairs(self._corpora, self._seed, number)

    def _plan_epoch(self, number: int, new_order: Callable[[int], Order] = _new_order) -> Arrays:
        rng = np.random.Generator(np.random.PCG64([self._seed, number]))
        if all(weight % 1 == 0 for _, weight in self._corpora):
            self._draw_as_before(rng)
        pairs = self._pairs_of(number)
        order, ends = self._sorted_by_bucket(pairs, new_order)
        lengths = self._shuffle_buckets(pairs, order, ends, rng)
        bounds = _bounds_of_batches(lengths, self._tokens_per_step)
        return order, bounds, rng.permutation(len(bounds) - 1)

    def _draw_as_before(self, rng: np.random.Generator) -> None:
        """Draw what version 0.2.0 drew for whole weights, so that their batches are the same."""
        if any(weight != 1.0 for _, weight in self._corpora):
            for size, _ in self._corpora:
                rng.shuffle(np.empty(size, np.uint8))

    def _shuffle_buckets(
        self, pairs: EpochPairs, order: Order, ends: list[int], rng: np.random.Generator
    ) -> Iterator[NDArray[Any]]:
        """Shuffle the pairs of each bucket in ``order``; yield the lengths of pairs in that order.

        The lengths of a bucket are read first, while its pairs are in the order of the corpus, and
        shuffled by the same draws: to read them in another order would need all of them in memory.
        What is yielded changes with the next part.
        """
        bounds = list(itertools.pairwise([0, *ends]))
        room = np.empty(max(end - start for start, end in bounds), self._of_a_pair)
        for start, end in bounds:
            places, lengths = order[start:end], room[: end - start]
            self._read_lengths(pairs, places, lengths, len(places) / len(order))
            before = rng.bit_generator.state
            rng.shuffle(places)
            rng.bit_generator.state = before
            rng.shuffle(lengths)
            for first in range(0, len(lengths), PAIRS_AT_ONCE):
                yield lengths[first : first + PAIRS_AT_ONCE]

    def _read_lengths(
        self, pairs: EpochPairs, places: Order, lengths: NDArray[Any], share: float
    ) -> None:
        # Pairs of a small bucket are far apart, and each brings 64 kB of the files into memory.
        at_once = min(PAIRS_AT_ONCE, 1 + int(share * PARTS_IN_MEMORY * PAIRS_AT_ONCE))
        for start in range(0, len(places), at_once):
            part = slice(start, start + at_once)
            found = pairs.at(places[part].astype(np.int64)).pairs
            for name, side in zip(SIDES, (self._source, self._target), strict=True):
                lengths[name][part] = side[found]
                leave_memory(side)

    def _sorted_by_bucket(
        self, pairs: EpochPairs, new_order: Callable[[int], Order]
    ) -> tuple[Order, list[int]]:
        """Return the places of an epoch in a stable order by bucket, and the end of each bucket.

        This is a counting sort in parts; the result of numpy's would need eight bytes per pair. The
        buckets are found twice, so that they need no memory.
        """
        starts = range(0, len(pairs), PAIRS_AT_ONCE)
        parts = [range(start, min(start + PAIRS_AT_ONCE, len(pairs))) for start in starts]
        of_each = np.zeros(256, dtype=np.int64)
        for part in parts:
            of_each += np.bincount(self._buckets_of(pairs, part), minlength=256)
        ends = np.cumsum(of_each)
        free = ends - of_each  # the first place of each bucket that is not filled yet
        order = new_order(len(pairs))
        for part in parts:
            buckets = self._buckets_of(pairs, part)
            members = np.argsort(buckets, kind="stable") + part.start
            count = np.bincount(buckets, minlength=256)
            for bucket, run in enumerate(np.split(members, np.cumsum(count)[:-1])):
                order[free[bucket] : free[bucket] + len(run)] = run
            free += count
        return order, ends.tolist()

    def _buckets_of(self, pairs: EpochPairs, part: range) -> NDArray[np.uint8]:
        found = pairs.at(np.arange(part.start, part.stop)).pairs
        longer = np.maximum(self._source[found], self._target[found])
        leave_memory(self._source, self._target)
        return self._bucket_of_length[longer]


def _bucket_of_length(longest: int) -> NDArray[np.uint8]:
    """Return the bucket of each length of the longer side, up to ``longest``."""
    bounds = [8]
    while bounds[-1] < 2**32:
        bounds.append(max(bounds[-1] + 1, int(bounds[-1] * BUCKET_GROWTH)))
    return np.searchsorted(bounds, np.arange(longest + 1)).astype(np.uint8)


def _bounds_of_batches(parts: Iterable[NDArray[Any]], tokens_per_step: int) -> Indices:
    """Return the bounds that cut pairs into the longest runs within the limit on both sides.

    ``parts`` are the lengths of the pairs, in their order.
    """
    bounds = [0]
    run: NDArray[Any] = np.empty(0)  # it may go on in the next part
    for part in parts:
        run = np.concatenate([run, part]) if len(run) else part
        ends = [np.cumsum(run[side], dtype=np.int64) for side in SIDES]
        first = 0
        while True:
            before = [of_side[first - 1] if first else 0 for of_side in ends]
            end = min(
                int(of_side.searchsorted(start + tokens_per_step, side="right"))
                for of_side, start in zip(ends, before, strict=True)
            )
            if end == len(run):
                break
            bounds.append(bounds[-1] + end - first)
            first = end
        run = run[first:].copy()
    if len(run):
        bounds.append(bounds[-1] + len(run))
    return np.array(bounds, dtype=np.int64)


def derived_bits(*parts: object) -> int:
    """Return 64 random bits, equal for parts that are equal as text."""
    text = " ".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
