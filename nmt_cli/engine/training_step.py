"""One optimizer step: the gradient of a batch, micro-batch by micro-batch (section 5).

Legend: T target tokens, D d_model.
"""

import hashlib
import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt_cli.corpus.loader import Batch, ParallelTokens
from nmt_cli.engine.loss import LossSums, label_smoothed_cross_entropy
from nmt_cli.engine.machine import Machine
from nmt_cli.model.packing import Packed, pack
from nmt_cli.model.transformer import Transformer


class Gradient(NamedTuple):
    """What a batch gave; the gradient itself is in the parameters."""

    loss: float  # label-smoothed, mean of a target token
    nll: float  # mean of a target token
    norm: float  # of the whole gradient, before clipping
    num_tokens: int  # target tokens

    @property
    def is_finite(self) -> bool:
        """Whether an update may be made of it."""
        return math.isfinite(self.loss) and math.isfinite(self.norm)


class ParallelBatch(NamedTuple):
    """A micro-batch as tensors."""

    source: Packed
    target_input: Packed
    target_output: Tensor  # without spare rows


def as_tensors(tokens: ParallelTokens, bos_id: int, machine: Machine) -> ParallelBatch:
    """Return a micro-batch on its device; the target's input is its output moved by one."""
    source = _pack(tokens.source_tokens, tokens.source_lengths, machine)
    shifted = np.roll(tokens.target_tokens, 1)
    starts = np.cumsum(tokens.target_lengths) - tokens.target_lengths
    shifted[starts] = bos_id
    target_input = _pack(shifted, tokens.target_lengths, machine)
    target_output = torch.from_numpy(tokens.target_tokens).to(machine.device, non_blocking=True)
    return ParallelBatch(source, target_input, target_output)


def loss_sums(
    model: Transformer, batch: ParallelBatch, smoothing: float, precision: str
) -> LossSums:
    """Return the summed loss of a micro-batch, with bf16 products where ``precision`` says so."""
    device_type = batch.target_output.device.type
    with torch.autocast(device_type, torch.bfloat16, enabled=precision == "bf16"):
        rows = model(batch.source, batch.target_input)  # T D
    if precision == "bf16":
        rows = rows.bfloat16()
    return label_smoothed_cross_entropy(rows, model.output_weight, batch.target_output, smoothing)


def compute_gradient(
    model: Transformer, batch: Batch, bos_id: int, smoothing: float, seed: int, machine: Machine
) -> Gradient:
    """Leave the gradient of the batch's mean token loss in the parameters.

    The gradient is that of the sum of token losses over the whole batch, divided by the number of
    its target tokens, however the batch is cut. Dropout is seeded for each micro-batch.
    """
    model.zero_grad(set_to_none=True)
    num_tokens = batch.num_target_tokens
    loss = torch.zeros((), dtype=torch.float64, device=machine.device)
    nll = torch.zeros_like(loss)
    for index, tokens in enumerate(batch.micro_batches):
        if not len(tokens.target_lengths):
            continue  # fewer pairs than micro-batches
        torch.manual_seed(micro_batch_seed(seed, batch.number, index))
        tensors = as_tensors(tokens, bos_id, machine)
        sums = loss_sums(model, tensors, smoothing, machine.precision)
        (sums.loss / num_tokens).backward()
        loss += sums.loss.detach()
        nll += sums.nll
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    return Gradient(loss.item() / num_tokens, nll.item() / num_tokens, norm.item(), num_tokens)


def micro_batch_seed(seed: int, batch_index: int, micro_batch: int) -> int:
    """Return the seed of a micro-batch's dropout: derived, so that nothing need be stored."""
    text = f"{seed} {batch_index} {micro_batch}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1


def _pack(tokens: NDArray[np.int64], lengths: NDArray[np.int64], machine: Machine) -> Packed:
    # A CPU compiles its bf16 products for each shape: ten times the time of the product itself.
    round_up = machine.precision == "bf16"
    return pack(torch.from_numpy(tokens), lengths.tolist(), machine.device, round_up=round_up)
