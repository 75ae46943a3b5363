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
    """The pairs of one optimizer step: one micro-batch as loaded, or cut into several."""

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
        """Return the pairs of this uncut batch in micro-batches of at most ``max_tokens`` a side.

        Their number is the smallest multiple of ``multiple_of`` that is enough. Raises UserError if
        a sentence has more than ``max_tokens``.
        """
        (whole,) = self.micro_batches
        source_ends = np.concatenate([[0], np.cumsum(whole.source_lengths)])
        target_ends = np.concatenate([[0], np.cumsum(whole.target_lengths)])
        parts = cut_into_micro_batches(
            whole.source_lengths, whole.target_lengths, max_tokens, multiple_of
        )
        return Batch(
            self.number,
            tuple(
                ParallelTokens(
                    whole.source_tokens[source_ends[part.start] : source_ends[part.stop]],
                    whole.source_lengths[part],
                    whole.target_tokens[target_ends[part.start] : target_ends[part.stop]],
                    whole.target_lengths[part],
                )
                for part in parts
            ),
        )

    @property
    def num_source_tokens(self) -> int:
        """The number of source tokens of all micro-batches, including each ``</s>``."""
        return sum(len(micro_batch.source_tokens) for micro_batch in self.micro_batches)

    @property
    def num_target_tokens(self) -> int:
        """The number of target tokens of all micro-batches, including each ``</s>``."""
        return sum(len(micro_batch.target_tokens) for micro_batch in self.micro_batches)


def load_batches(
    plan: BatchPlan,
    source: BinarizedText,
    target: BinarizedText,
    first_index: int,
    sampler: PieceSampler | None = None,
) -> Iterator[Batch]:
    """Yield the batches of the plan without end, uncut, from ``first_index`` on.

    A thread reads the next batch while the caller computes. A ``sampler`` cuts the text into other
    pieces.
    """

    def load(index: int) -> Batch:
        pairs = plan.batch(index)
        sides = [source.gather(pairs), target.gather(pairs)]
        if sampler is not None:
            sides = [
                sampler.sample(side, index, name)
                for side, name in zip(sides, ("source", "target"), strict=True)
            ]
        return Batch(index, (ParallelTokens(*chain.from_iterable(sides)),))

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="loader") as pool:
        index, upcoming = first_index, pool.submit(load, first_index)
        while True:
            batch = upcoming.result()
            index += 1
            upcoming = pool.submit(load, index)
            yield batch
