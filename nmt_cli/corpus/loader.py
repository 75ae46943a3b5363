"""Batches as numpy arrays: read ahead of their use, and cut into micro-batches."""

import bisect
import itertools
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from nmt_cli.corpus.batching import BatchPlan, Lengths
from nmt_cli.corpus.binarized import BinarizedText, Indices, Sentences
from nmt_cli.messages.errors import UserError

BATCHES_AHEAD = 2  # one that is ready, and one that is being read
BATCHES_BEGUN = 2  # the one that is being read, and the next one


class SentencePairs(NamedTuple):
    """Both sides of some pairs, and the links of their words if they are asked for."""

    source: Sentences
    target: Sentences
    links: Sentences | None = None  # each link is two numbers: a source word and a target word

    @property
    def sides(self) -> tuple[Sentences, Sentences]:
        """Source and target."""
        return self.source, self.target

    @property
    def columns(self) -> tuple[Sentences, ...]:
        """Source, target, and the links if there are any."""
        return self.sides if self.links is None else (*self.sides, self.links)

    def with_some_links(self) -> "SentencePairs":
        """Return the pairs with a link between the first words of each, to measure memory."""
        number = len(self.source.lengths)
        return self._replace(links=Sentences(np.zeros(2 * number, np.int64), np.full(number, 2)))


class PlannedBatch(NamedTuple):
    """A batch of the plan: its number, counted through all epochs, its epoch, and its pairs."""

    number: int
    epoch: int
    pairs: Indices
    copies: Indices  # how often each pair appears earlier in the list of the epoch


# Returns other text, or other pieces, of the pairs of a batch.
PairChange = Callable[[SentencePairs, PlannedBatch], SentencePairs]


class PairChanges(AbstractContextManager[Any], Protocol):
    """Processes that change batches, ``number`` at a time."""

    number: int

    def begin(self, planned: PlannedBatch) -> Callable[[], SentencePairs]:
        """Let a process change the pairs of a batch; return what waits for them."""
        ...


class Batch(NamedTuple):
    """The pairs of one optimizer step: one micro-batch as loaded, or cut into several."""

    number: int  # the batch_index of the plan, counted through all epochs
    micro_batches: tuple[SentencePairs, ...]
    sent: Any = None  # what training has sent to a GPU ahead of the use of these micro-batches
    cut_ahead: "CutAhead | None" = None  # of an uncut batch

    def __str__(self) -> str:
        return (
            f"batch {self.number:,} ({self.num_source_tokens:,} source and "
            f"{self.num_target_tokens:,} target tokens)"
        )

    @property
    def largest_side(self) -> int:
        """The number of tokens on the largest side of any micro-batch."""
        return max(int(side.lengths.sum()) for pairs in self.micro_batches for side in pairs.sides)

    @property
    def longest(self) -> int:
        """The number of tokens of the longest sentence."""
        return max(
            int(side.lengths.max(initial=0)) for pairs in self.micro_batches for side in pairs.sides
        )

    @property
    def num_source_tokens(self) -> int:
        """The number of source tokens of all micro-batches, including each ``</s>``."""
        return sum(int(pairs.source.lengths.sum()) for pairs in self.micro_batches)

    @property
    def num_target_tokens(self) -> int:
        """The number of target tokens of all micro-batches, including each ``</s>``."""
        return sum(int(pairs.target.lengths.sum()) for pairs in self.micro_batches)

    def into_micro_batches(self, max_tokens: int, multiple_of: int = 1) -> "Batch":
        """Return the pairs of this uncut batch in micro-batches of at most ``max_tokens`` a side.

        Their number is the smallest multiple of ``multiple_of`` that is enough. Raises UserError if
        a sentence has more than ``max_tokens``.
        """
        if self.cut_ahead is not None and self.cut_ahead[:2] == (max_tokens, multiple_of):
            return self.cut_ahead.batch
        (whole,) = self.micro_batches
        lengths = whole.source.lengths, whole.target.lengths
        parts = cut_into_micro_batches(*lengths, max_tokens, multiple_of)
        return Batch(
            self.number, tuple(map(SentencePairs, *(each.parts(parts) for each in whole.columns)))
        )


class CutAhead(NamedTuple):
    """A batch that was cut ahead of its use, and how."""

    max_tokens: int
    multiple_of: int
    batch: Batch


def read_whole(batch: Batch) -> Batch:
    """Return ``batch`` after reading all of it."""
    for pairs in batch.micro_batches:
        for column in pairs.columns:
            _ = column.tokens
    return batch


def load_batches(
    plan: BatchPlan,
    texts: Sequence[BinarizedText],
    numbers: Iterable[int],
    change: PairChange | None = None,
    prepare: Callable[[Batch], Batch] = read_whole,
    own: Callable[[Batch], Iterable[SentencePairs]] = lambda batch: batch.micro_batches,
    pool: PairChanges | None = None,
) -> Generator[Batch, None, None]:
    """Yield the batches of the plan with these ``numbers``, uncut.

    ``texts`` are the source, the target, and perhaps the links of their words.

    A thread takes the next batches while the caller computes, and calls ``prepare``, which reads
    their tokens. The system begins to read those of ``own(batch)`` a batch earlier. ``change``
    returns other pairs in place of a batch's, and needs all of them. If there is a ``pool``, it
    does that, ahead of the thread.
    """
    to_begin = iter(numbers)  # taken in the thread, because an epoch may be planned for that
    begun = deque[tuple[int, Callable[[], SentencePairs]]]()
    num_begun = BATCHES_BEGUN if pool is None else 1 + pool.number

    def begin(number: int) -> Callable[[], SentencePairs]:
        planned = PlannedBatch(number, plan.locate(number)[0], *plan.listed(number))
        if pool is not None:
            return pool.begin(planned)
        pairs = SentencePairs(*(text.gather(planned.pairs) for text in texts))
        for some in [pairs] if change is not None else own(Batch(number, (pairs,))):
            for column in some.columns:
                column.expect()
        return partial(change, pairs, planned) if change is not None else lambda: pairs

    def load() -> Batch | None:
        for number in itertools.islice(to_begin, num_begun - len(begun)):
            begun.append((number, begin(number)))
        if not begun:
            return None
        number, read = begun.popleft()
        return prepare(Batch(number, (read(),)))

    with (
        nullcontext() if pool is None else pool,
        ThreadPoolExecutor(max_workers=1, thread_name_prefix="loader") as thread,
    ):
        upcoming = deque(thread.submit(load) for _ in range(BATCHES_AHEAD))
        while (batch := upcoming.popleft().result()) is not None:
            upcoming.append(thread.submit(load))
            yield batch


def cut_into_micro_batches(
    source_lengths: Indices, target_lengths: Indices, max_tokens: int, multiple_of: int = 1
) -> list[slice]:
    """Return slices that cut a batch into parts of at most ``max_tokens`` on either side.

    Their number is the smallest multiple of ``multiple_of`` with which this is possible. The parts
    have about equal cost, counted in tokens of both sides; some may be empty, at least where there
    are fewer pairs than parts. Raises UserError if a single pair is over the limit.
    """
    refuse_longer(max_tokens, source_lengths, target_lengths)
    sides = [np.cumsum(lengths).tolist() for lengths in (source_lengths, target_lengths)]
    costs = np.cumsum(source_lengths + target_lengths)
    of_limits = [(side, max_tokens) for side in sides]
    fewest = len(_longest_parts(of_limits))
    number = multiple_of * max(1, -(-fewest // multiple_of))
    equal_costs = costs[-1] * np.arange(1, number) / number
    ends = [*np.searchsorted(costs, equal_costs).tolist(), len(costs)]
    if not _are_within(ends, of_limits):
        ends = _ends_of_least_cost(costs.tolist(), of_limits, number)
    return [slice(start, end) for start, end in itertools.pairwise([0, *ends])]


def _ends_of_least_cost(
    costs: list[int], of_limits: list[tuple[list[int], int]], number: int
) -> list[int]:
    """Return the ends of parts within the limits whose most expensive one costs least."""
    lowest, highest = costs[-1] // number, costs[-1]
    while lowest < highest:
        most = (lowest + highest) // 2
        parts = _longest_parts([*of_limits, (costs, most)])
        lowest, highest = (most + 1, highest) if len(parts) > number else (lowest, most)
    ends = _longest_parts([*of_limits, (costs, highest)])
    return ends + [len(costs)] * (number - len(ends))


def _longest_parts(of_limits: list[tuple[list[int], int]]) -> list[int]:
    """Return the ends of parts that are as long as the limits allow.

    ``of_limits`` are running sums, each with the most by which it may rise within a part, unless
    the part is a single pair.
    """
    ends, start, num_pairs = [], 0, len(of_limits[0][0])
    while start < num_pairs:
        before = [sums[start - 1] if start else 0 for sums, _ in of_limits]
        start = max(
            start + 1,
            min(
                bisect.bisect_right(sums, first + limit, start)
                for (sums, limit), first in zip(of_limits, before, strict=True)
            ),
        )
        ends.append(start)
    return ends


def _are_within(ends: list[int], of_limits: list[tuple[list[int], int]]) -> bool:
    return all(
        sums[end - 1] - (sums[start - 1] if start else 0) <= limit
        for start, end in itertools.pairwise([0, *ends])
        if end > start
        for sums, limit in of_limits
    )


def refuse_longer(max_tokens: int, *sides: Indices | Lengths) -> None:
    """Raise UserError if a sentence of one of the ``sides`` has more than ``max_tokens``."""
    longest = max(int(lengths.max(initial=0)) for lengths in sides)
    if longest > max_tokens:
        raise UserError(
            f"one sentence pair has {longest:,} tokens, more than --max-tokens-per-device "
            f"{max_tokens:,}; raise it or lower data.max_length."
        )
