"""The tensors of a micro-batch: as they are, or padded to a room that has a CUDA graph."""

import sys
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt_cli.corpus.binarized import Sentences
from nmt_cli.hardware.machine import Machine
from nmt_cli.model.packing import Packed, Room, pack_into_room, pack_on_cpu
from nmt_cli.model.transformer import PaddedPairs
from nmt_cli.training.guided_alignment import PieceLinks

UNLIMITED = sys.maxsize  # positions, which are not learned


class MicroBatch(NamedTuple):
    """The tensors of a micro-batch."""

    source: Packed
    target_input: Packed  # the target moved by one
    target_output: Tensor
    padded: PaddedPairs | None = None  # if attention is computed in padded groups on a GPU
    links: PieceLinks | None = None  # if a head is guided
    num_targets: Tensor | None = None  # without those of fillers, if this fills a room
    room: Room | None = None


def packed(sentences: Sentences, machine: Machine) -> Packed:
    """Return the sentences of one side, packed on the CPU for ``machine``."""
    tokens, lengths = sentences
    # oneDNN compiles a product for each new number of rows, in ten times the time of the product.
    is_by_onednn = machine.precision == "bf16" or machine.fp32_products == "onednn"
    round_up = is_by_onednn and machine.device.type == "cpu"
    return pack_on_cpu(torch.from_numpy(tokens), lengths.tolist(), round_up=round_up)


def in_room(
    source: Sentences,
    target_input: Sentences,
    target_output: NDArray[np.int64],
    most_positions: int,
) -> MicroBatch:
    """Return the micro-batch on the CPU, padded to a room, for sentences of ``most_positions``."""
    lengths = source.lengths.tolist(), target_input.lengths.tolist()
    room, num_fillers = Room.of(*lengths, most_positions)
    rows = room.source_rows, room.target_rows
    on_source, on_target = (
        pack_into_room(torch.from_numpy(side.tokens), of_side, num_rows, num_fillers, room)
        for side, of_side, num_rows in zip((source, target_input), lengths, rows, strict=True)
    )
    output = torch.from_numpy(
        np.pad(target_output, (0, len(on_target.tokens) - len(target_output)))
    )
    num_targets = torch.tensor(len(target_output))
    return MicroBatch(on_source, on_target, output, num_targets=num_targets, room=room)
