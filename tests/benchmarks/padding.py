"""How much padding is left in our batches: none in the packed part, some in attention."""

from typing import NamedTuple

import numpy as np
import torch

from nmt_cli.corpus.batching import BatchPlan, Lengths
from nmt_cli.model.attention_layout import AttentionLayout
from nmt_cli.model.packing import Packed, pack


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


def _packed(lengths: Lengths) -> Packed:
    tokens = torch.zeros(int(lengths.sum(dtype=np.int64)), dtype=torch.int64)
    return pack(tokens, lengths.tolist(), round_up=True)
