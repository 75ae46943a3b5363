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
# The paper's batches then have 2.5 % of padding, and a thousand of them about 35 shapes.
STEPS_OF_PADDED_ROWS = 16
STEPS_OF_SENTENCES = 4  # a sentence without rows costs next to nothing
TILES = (32, 64, 128)  # rows of a tile of attention; longer sentences take several of the last


class Packed(NamedTuple):
    """The sentences of one side of a batch, concatenated without padding, on one device.

    Spare rows belong to no sentence: nothing attends to them and no gradient comes from them.
    """

    tokens: Tensor  # T
    positions: Tensor  # T, position of each token in its sentence
    lengths: tuple[int, ...]  # B, all at least 1
    bounds: Tensor  # B+1, int32: each sentence's first row, and the end of the last
    longest_padded: int = 0  # what the longest sentence counts as, if padded to a shape

    @property
    def num_tokens(self) -> int:
        """The number of tokens of all sentences, without spare rows."""
        return sum(self.lengths)

    @property
    def longest(self) -> int:
        """The length of the longest sentence, or what it counts as."""
        return self.longest_padded or max(self.lengths)


class PaddedShape(NamedTuple):
    """The shape of a micro-batch with padding, so that few different shapes occur."""

    source_rows: int
    target_rows: int
    num_sentences: int
    longest: int

    @classmethod
    def of(
        cls, source: Sequence[int], target: Sequence[int], most_positions: int
    ) -> tuple["PaddedShape", int]:
        """Return the shape for pairs of these lengths, and the number of fillers in it.

        Fillers are sentences that take all rows which are left over. Both sides have equally many,
        of at least one row each, so that kernels of attention write every row. The model has
        positions for sentences of ``most_positions``.
        """
        longest = max(*source, *target)
        tile = next((each for each in TILES if each >= longest), TILES[-1])
        longest = min(-(-longest // tile) * tile, most_positions)
        sums, num_fillers = (sum(source), sum(target)), 1
        while True:
            rows = [rounded_up(number + num_fillers, STEPS_OF_PADDED_ROWS) for number in sums]
            left = max(row - number for row, number in zip(rows, sums, strict=True))
            if left <= num_fillers * longest:
                break
            num_fillers = -(-left // longest)
        num_sentences = rounded_up(len(source) + num_fillers, STEPS_OF_SENTENCES)
        return cls(rows[0], rows[1], num_sentences, longest), num_fillers


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
    return sent_together(torch.device(device), pack_on_cpu(tokens, lengths, round_up=round_up))


def pack_on_cpu(tokens: Tensor, lengths: Sequence[int], *, round_up: bool = False) -> Packed:
    """Return the sentences packed on the CPU, in tensors for ``sent_together``."""
    counts = torch.tensor(lengths, dtype=torch.int64)
    bounds = F.pad(counts.cumsum(0), (1, 0))
    positions = torch.arange(len(tokens)) - bounds[:-1].repeat_interleave(counts)
    if round_up:
        spare = rounded_up(len(tokens), STEPS_OF_ROWS) - len(tokens)
        tokens, positions = F.pad(tokens, (0, spare)), F.pad(positions, (0, spare))
    return Packed(tokens.long(), positions, tuple(lengths), bounds.int())


def pack_to_shape(
    tokens: Tensor, lengths: Sequence[int], num_rows: int, num_fillers: int, shape: PaddedShape
) -> Packed:
    """Return the sentences packed on the CPU in ``num_rows`` rows, of which fillers take the rest.

    Behind the fillers, the shape has sentences without rows, so that bounds repeat the last one.
    """
    each, more = divmod(num_rows - len(tokens), num_fillers)
    fillers = [each + 1] * more + [each] * (num_fillers - more)
    packed = pack_on_cpu(F.pad(tokens, (0, num_rows - len(tokens))), [*lengths, *fillers])
    empty = shape.num_sentences + 1 - len(packed.bounds)
    bounds = torch.cat([packed.bounds, packed.bounds[-1:].expand(empty)])
    return packed._replace(bounds=bounds, longest_padded=shape.longest)
