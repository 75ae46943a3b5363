"""How much padding is left in our batches: none in the packed part, some in attention.

As a program: how much there is in the shapes of CUDA graphs, for the prepared text in a folder.
"""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from nmt_cli.corpus.batching import BatchPlan, Lengths
from nmt_cli.corpus.binarized import BinarizedText
from nmt_cli.corpus.loader import cut_into_micro_batches
from nmt_cli.model.attention_layout import AttentionLayout
from nmt_cli.model.packing import Packed, PaddedShape, pack


class Padding(NamedTuple):
    """Shares of the work that is spent on padding."""

    attention_places: float  # of queries and keys in the padded groups
    attention_pairs: float  # of query-key pairs, which grow with the square of the length
    spare_rows: float  # of packed rows, in bf16, where their number is rounded up


def measure_padding(plan: BatchPlan, source: Lengths, target: Lengths) -> Padding:
    """Return the shares over the first epoch of ``plan``, given the lengths of its pairs."""
    real_places = places = real_pairs = pairs = real_rows = rows = index = 0
    while plan.locate(index)[0] == 0:
        batch = plan.batch(index)
        sides = _packed(source[batch]), _packed(target[batch])
        for queries, keys in ((0, 0), (1, 1), (1, 0)):
            groups = AttentionLayout(sides[queries], sides[keys]).padded.groups
            places += sum(g.num_sentences * (g.query_length + g.key_length) for g in groups)
            real_places += sides[queries].num_tokens + sides[keys].num_tokens
            pairs += sum(g.num_sentences * g.query_length * g.key_length for g in groups)
            real_pairs += int(np.dot(sides[queries].lengths, sides[keys].lengths))
        real_rows += sum(side.num_tokens for side in sides)
        rows += sum(len(side.tokens) for side in sides)
        index += 1
    return Padding(1.0 - real_places / places, 1.0 - real_pairs / pairs, 1.0 - real_rows / rows)


def measure_shapes(
    plan: BatchPlan, source: Lengths, target: Lengths, num_ranks: int, num_batches: int
) -> tuple[float, int]:
    """Return the share of rows that are padding in the shapes of one rank, and how many shapes."""
    real, rows, shapes = 0, 0, set[PaddedShape]()
    for index in range(num_batches):
        pairs = plan.batch(index)
        sides = source[pairs].astype(np.int64), target[pairs].astype(np.int64)
        own = cut_into_micro_batches(*sides, int(max(map(np.sum, sides))), num_ranks)[0]
        shape, _ = PaddedShape.of(sides[0][own].tolist(), sides[1][own].tolist(), sys.maxsize)
        shapes.add(shape)
        real += int(sides[0][own].sum() + sides[1][own].sum())
        rows += shape.source_rows + shape.target_rows
    return 1.0 - real / rows, len(shapes)


def _packed(lengths: Lengths) -> Packed:
    tokens = torch.zeros(int(lengths.sum(dtype=np.int64)), dtype=torch.int64)
    return pack(tokens, lengths.tolist(), round_up=True)


if __name__ == "__main__":
    sides = ("source", "target")
    texts: list[Any] = [
        BinarizedText.open(Path(sys.argv[1]), f"train.{side}").lengths for side in sides
    ]
    sample = np.random.default_rng(1).integers(0, len(texts[0]), 1_500_000)
    source, target = (text[sample] for text in texts)
    plan = BatchPlan(source, target, 25_000, 1, [(len(source), 1.0)])
    number = min(1_000, len(plan.batches_of(0)))
    for ranks in (1, 8):
        share, shapes = measure_shapes(plan, source, target, ranks, number)
        sys.stdout.write(f"{ranks} ranks: {share:.2%} padding, {shapes} shapes, {number} batches\n")
