"""Batches without padding.

Legend: T rows of a batch: the tokens of all sentences, then spare rows if the number of rows is
rounded up; B sentences.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from nmt_cli.hardware.device import sent_together
from nmt_cli.hardware.memory import rounded_up

STEPS_OF_ROWS = 32  # between two powers of two, if numbers of rows are rounded up


class Packed(NamedTuple):
    """The sentences of one side of a batch, concatenated without padding, on one device.

    Spare rows belong to no sentence: nothing attends to them and no gradient comes from them.
    """

    tokens: Tensor  # T
    positions: Tensor  # T, position of each token in its sentence
    lengths: tuple[int, ...]  # B, all at least 1
    bounds: Tensor  # B+1, int32: each sentence's first row, and the end of the last

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
    packed = pack_on_cpu(tokens, lengths, round_up=round_up)
    return sent_together(torch.device(device), packed)


def pack_on_cpu(tokens: Tensor, lengths: Sequence[int], *, round_up: bool = False) -> Packed:
    """Return the sentences packed on the CPU, in tensors for ``sent_together``."""
    counts = torch.tensor(lengths, dtype=torch.int64)
    bounds = F.pad(counts.cumsum(0), (1, 0))
    positions = torch.arange(len(tokens)) - bounds[:-1].repeat_interleave(counts)
    if round_up:
        spare = rounded_up(len(tokens), STEPS_OF_ROWS) - len(tokens)
        tokens, positions = F.pad(tokens, (0, spare)), F.pad(positions, (0, spare))
    return Packed(tokens.long(), positions, tuple(lengths), bounds.int())
