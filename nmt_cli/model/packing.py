"""Batches without padding.

Legend: T rows of a batch: the tokens of all sentences, then spare rows if the number of rows is
rounded up; B sentences.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class Packed(NamedTuple):
    """The sentences of one side of a batch, concatenated without padding.

    Spare rows belong to no sentence: nothing attends to them and no gradient comes from them.
    """

    tokens: Tensor  # T, on the device of the model
    positions: Tensor  # T, position of each token in its sentence, on the device of the model
    lengths: tuple[int, ...]  # B, all at least 1

    @property
    def num_tokens(self) -> int:
        """The number of tokens of all sentences, without spare rows."""
        return sum(self.lengths)

    @property
    def longest(self) -> int:
        """The length of the longest sentence."""
        return max(self.lengths)


def pack(
    tokens: Tensor,
    lengths: Sequence[int],
    device: torch.device | str = "cpu",
    *,
    round_up: bool = False,
) -> Packed:
    """Return the flat ``tokens`` of sentences of these ``lengths`` as a batch on ``device``.

    ``round_up`` adds spare rows, at most 1/32, so that fewer different numbers of rows occur.
    """
    counts = torch.tensor(lengths, dtype=torch.int64)
    starts = counts.cumsum(0) - counts
    positions = torch.arange(len(tokens)) - starts.repeat_interleave(counts)
    if round_up:
        spare = rounded_up(len(tokens)) - len(tokens)
        tokens, positions = F.pad(tokens, (0, spare)), F.pad(positions, (0, spare))
    return Packed(
        tokens.to(device, torch.int64, non_blocking=True),
        positions.to(device, non_blocking=True),
        tuple(lengths),
    )


def rounded_up(count: int) -> int:
    """Return ``count`` rounded up to one of 32 equal steps between two powers of two."""
    step = max(1, 1 << count.bit_length() >> 6)
    return -(-count // step) * step
