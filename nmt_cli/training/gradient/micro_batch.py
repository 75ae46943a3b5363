"""The tensors of a micro-batch, with the numbers of tokens that a device computes with best."""

import sys
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt_cli.corpus.binarized import Sentences
from nmt_cli.hardware.machine import Machine
from nmt_cli.model.packing import Packed, PaddedShape, pack_on_cpu, pack_to_shape
from nmt_cli.recipe.model_values import ModelShape
from nmt_cli.training.gradient.guided_alignment import PieceLinks


class MicroBatch(NamedTuple):
    """The tensors of a micro-batch."""

    source: Packed
    target_input: Packed  # the target moved by one
    target_output: Tensor
    links: PieceLinks | None = None  # if a head is guided
    num_targets: Tensor | None = None  # without those of fillers, if this is padded to a shape
    shape: PaddedShape | None = None


def packed(sentences: Sentences, machine: Machine) -> Packed:
    """Return the sentences of one side, packed on the CPU for ``machine``."""
    tokens, lengths = sentences
    # oneDNN compiles a product for each new number of rows, in ten times the time of the product.
    is_by_onednn = machine.precision == "bf16" or machine.fp32_products == "onednn"
    round_up = is_by_onednn and machine.device.type == "cpu"
    return pack_on_cpu(torch.from_numpy(tokens), lengths.tolist(), round_up=round_up)


def padded_to_shape(
    source: Sentences, target_input: Sentences, target_output: NDArray[np.int64], config: ModelShape
) -> MicroBatch:
    """Return the micro-batch on the CPU, padded to a shape of a model with this ``config``."""
    most = config.max_positions if config.positions == "learned" else sys.maxsize
    lengths = source.lengths.tolist(), target_input.lengths.tolist()
    shape, num_fillers = PaddedShape.of(*lengths, most)
    rows = shape.source_rows, shape.target_rows
    on_source, on_target = (
        pack_to_shape(torch.from_numpy(side.tokens), of_side, num_rows, num_fillers, shape)
        for side, of_side, num_rows in zip((source, target_input), lengths, rows, strict=True)
    )
    output = torch.from_numpy(
        np.pad(target_output, (0, len(on_target.tokens) - len(target_output)))
    )
    num_targets = torch.tensor(len(target_output))
    return MicroBatch(on_source, on_target, output, num_targets=num_targets, shape=shape)
