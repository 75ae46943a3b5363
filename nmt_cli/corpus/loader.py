"""Reads batches ahead of their use, as numpy arrays; training makes tensors of them."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import NamedTuple

import numpy as np

from nmt_cli.corpus.batching import BatchPlan, Indices, cut_into_micro_batches
from nmt_cli.corpus.binarized import BinarizedText
from nmt_cli.corpus.piece_sampler import PieceSampler


class ParallelTokens(NamedTuple):
    """Both sides of some pairs: flat tokens, each sentence with its ``</s>``, and lengths."""

    source_tokens: Indices
    source_lengths: Indices
    target_tokens: Indices
    target_lengths: Indices


class Batch(NamedTuple):
    """The pairs of one optimizer step, cut into micro-batches that fit the device."""

    number: int  # the batch_index of the plan, counted through all epochs
    micro_batches: tuple[ParallelTokens, ...]

    def __str__(self) -> str:
        return (
            f"batch {self.number:,} ({self.num_source_tokens:,} source and "
            f"{self.num_target_tokens:,} target tokens)"
        )

    @property
    def largest_side(self) -> int:
        """The number of tokens on the largest side of any micro-batch."""
        return max(
            max(len(tokens.source_tokens), len(tokens.target_tokens))
            for tokens in self.micro_batches
        )

    @property
    def longest(self) -> int:
        """The number of tokens of the longest sentence."""
        return max(
            int(lengths.max(initial=0))
            for tokens in self.micro_batches
            for lengths in (tokens.source_lengths, tokens.target_lengths)
        )

    def cut(self, max_tokens: int, multiple_of: int = 1) -> "Batch":
        """Return the same pairs in micro-batches of at most ``max_tokens`` a side.

        Returns this batch itself if its micro-batches are already small enough. Raises UserError
        if a sentence has more than ``max_tokens``.
        """
        if self.largest_side <= max_tokens:
            return self
        whole = ParallelTokens(*map(np.concatenate, zip(*self.micro_batches, strict=True)))
        return Batch(self.number, _cut(whole, max_tokens, multiple_of))

    @property
    def num_source_tokens(self) -> int:
        """The number of source tokens of all micro-batches, including each ``</s>``."""
        return sum(len(micro_batch.source_tokens) for micro_batch in self.micro_batches)

    @property
    def num_target_tokens(self) -> int:
        """The number of target tokens of all micro-batches, including each ``</s>``."""
        return sum(len(micro_batch.target_tokens) for micro_batch in self.micro_batches)


def micro_batches_of(
    pairs: Indices,
    source: BinarizedText,
    target: BinarizedText,
    max_tokens: int,
    multiple_of: int = 1,
) -> tuple[ParallelTokens, ...]:
    """Return the pairs in micro-batches of at most ``max_tokens`` on either side.

    Their number is the smallest multiple of ``multiple_of`` that is enough. Raises UserError if a
    sentence has more than ``max_tokens``.
    """
    return _cut(
        ParallelTokens(*source.gather(pairs), *target.gather(pairs)), max_tokens, multiple_of
    )


def _cut(tokens: ParallelTokens, max_tokens: int, multiple_of: int) -> tuple[ParallelTokens, ...]:
    source_ends = np.concatenate([[0], np.cumsum(tokens.source_lengths)])
    target_ends = np.concatenate([[0], np.cumsum(tokens.target_lengths)])
    pieces = cut_into_micro_batches(
        tokens.source_lengths, tokens.target_lengths, max_tokens, multiple_of
    )
    return tuple(
        ParallelTokens(
            tokens.source_tokens[source_ends[piece.start] : source_ends[piece.stop]],
            tokens.source_lengths[piece],
            tokens.target_tokens[target_ends[piece.start] : target_ends[piece.stop]],
            tokens.target_lengths[piece],
        )
        for piece in pieces
    )


def load_batches(
    plan: BatchPlan,
    source: BinarizedText,
    target: BinarizedText,
    max_tokens: int,
    first_index: int,
    multiple_of: int = 1,
    sampler: PieceSampler | None = None,
) -> Iterator[Batch]:
    """Yield the batches of the plan without end, from ``first_index`` on.

    A thread reads the next batch while the caller computes. A ``sampler`` cuts the text into other
    pieces before the batch is cut into micro-batches. Raises UserError if a sentence has more than
    ``max_tokens``.
    """

    def load(index: int) -> Batch:
        pairs = plan.batch(index)
        if sampler is None:
            return Batch(index, micro_batches_of(pairs, source, target, max_tokens, multiple_of))
        sides = (("source", source), ("target", target))
        drawn = [sampler.sample(side.gather(pairs), index, name) for name, side in sides]
        tokens = ParallelTokens(*chain.from_iterable(drawn))
        return Batch(index, _cut(tokens, max_tokens, multiple_of))

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="loader") as pool:
        index, upcoming = first_index, pool.submit(load, first_index)
        while True:
            batch = upcoming.result()
            index += 1
            upcoming = pool.submit(load, index)
            yield batch
