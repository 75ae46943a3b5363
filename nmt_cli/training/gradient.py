"""The gradient of a batch, added up micro-batch by micro-batch (section 5).

Legend: T target tokens, D d_model.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt_cli.corpus.loader import Batch, ParallelTokens
from nmt_cli.derived_seeds import derived_bits
from nmt_cli.hardware.machine import Machine
from nmt_cli.hardware.memory import FullMemoryError, noticing_full_memory
from nmt_cli.model.packing import Packed, pack
from nmt_cli.model.transformer import Transformer
from nmt_cli.training.loss import LossSums, label_smoothed_cross_entropy
from nmt_cli.training.stop_signals import StopRequest


class Gradient(NamedTuple):
    """Figures of a batch and its gradient; the gradient itself is in the parameters."""

    loss: float  # label-smoothed, mean of a target token
    nll: float  # mean of a target token
    norm: float  # of the whole gradient, before clipping
    num_tokens: int  # target tokens

    @property
    def is_finite(self) -> bool:
        """Whether the loss and the gradient are finite, so that the weights may be updated."""
        return math.isfinite(self.loss) and math.isfinite(self.norm)


class ParallelBatch(NamedTuple):
    """A micro-batch as tensors."""

    source: Packed
    target_input: Packed
    target_output: Tensor  # without spare rows


def as_tensors(
    tokens: ParallelTokens, start_id: int, machine: Machine, *, source_eos: bool
) -> ParallelBatch:
    """Return a micro-batch on its device; the target's input is its output moved by one.

    The last token of each source, its ``</s>``, is left out unless ``source_eos``.
    """
    source_tokens, source_lengths = tokens.source_tokens, tokens.source_lengths
    if not source_eos:
        source_tokens = np.delete(source_tokens, np.cumsum(source_lengths) - 1)
        source_lengths = source_lengths - 1
    source = _pack(source_tokens, source_lengths, machine)
    shifted = np.roll(tokens.target_tokens, 1)
    starts = np.cumsum(tokens.target_lengths) - tokens.target_lengths
    shifted[starts] = start_id
    target_input = _pack(shifted, tokens.target_lengths, machine)
    target_output = torch.from_numpy(tokens.target_tokens).to(machine.device, non_blocking=True)
    return ParallelBatch(source, target_input, target_output)


def loss_sums(
    model: Transformer, batch: ParallelBatch, smoothing: float, precision: str
) -> LossSums:
    """Return the summed loss of a micro-batch; ``precision`` "bf16" computes products in bf16."""
    device_type = batch.target_output.device.type
    with torch.autocast(device_type, torch.bfloat16, enabled=precision == "bf16"):
        rows = model(batch.source, batch.target_input)  # T D
    if precision == "bf16":
        rows = rows.bfloat16()
    return label_smoothed_cross_entropy(
        rows, model.output_weight, batch.target_output, smoothing, model.output_bias
    )


def compute_gradient(
    model: Transformer,
    batch: Batch,
    start_id: int,
    smoothing: float,
    seed: int,
    machine: Machine,
    stop: StopRequest | None = None,
) -> Gradient:
    """Leave the gradient of the batch's mean token loss in the parameters, the same on all ranks.

    The gradient is that of the sum of token losses over the whole batch, divided by the number of
    its target tokens, whichever rank computes which micro-batch. Dropout is seeded for each
    micro-batch. The ranks exchange requests to ``stop`` together with the losses. Raises
    FullMemoryError on all ranks if one of them runs out of memory, and PeerLostError if a rank is
    lost.
    """
    model.zero_grad(set_to_none=True)
    ranks, failure, gradients = machine.ranks, None, None
    try:
        with noticing_full_memory():
            losses = _accumulate(model, batch, start_id, smoothing, seed, machine)
            gradients = ranks.collect_gradients(model.parameters())
    except FullMemoryError as error:
        losses, failure = [math.nan, math.nan], error
    asked = stop.flags() if stop is not None else []
    loss, nll, failures, *asked = ranks.sum([*losses, float(failure is not None), *asked])
    if failures:
        try:
            raise FullMemoryError(on_all_ranks=True) from failure
        finally:
            failure = None  # its traceback would keep this frame alive, and with it all activations
    if stop is not None:
        stop.agree(asked)
    num_tokens = batch.num_target_tokens
    if not math.isfinite(loss):
        return Gradient(loss / num_tokens, nll / num_tokens, math.nan, num_tokens)
    ranks.sum_gradients(model.parameters(), gradients)
    norm = torch.nn.utils.get_total_norm(
        [p.grad for p in model.parameters() if p.grad is not None]
    ).item()
    return Gradient(loss / num_tokens, nll / num_tokens, norm, num_tokens)


def _accumulate(
    model: Transformer, batch: Batch, start_id: int, smoothing: float, seed: int, machine: Machine
) -> list[float]:
    """Add up the gradients of this rank's micro-batches; return their summed losses."""
    sums = torch.zeros(2, dtype=torch.float64, device=machine.device)
    for index, tokens in machine.ranks.share(batch.micro_batches):
        if not len(tokens.target_lengths):
            continue  # the batch has fewer pairs than micro-batches
        torch.manual_seed(micro_batch_seed(seed, batch.number, index))
        tensors = as_tensors(tokens, start_id, machine, source_eos=model.config.source_eos)
        losses = loss_sums(model, tensors, smoothing, machine.precision)
        (losses.loss / batch.num_target_tokens).backward()
        sums += torch.stack([losses.loss.detach(), losses.nll])
    return sums.tolist()


def micro_batch_seed(seed: int, batch_index: int, micro_batch: int) -> int:
    """Return the seed of a micro-batch's dropout, derived so that checkpoints need not store it."""
    return derived_bits(seed, batch_index, micro_batch) >> 1


def _pack(tokens: NDArray[np.int64], lengths: NDArray[np.int64], machine: Machine) -> Packed:
    # oneDNN compiles a product for each new number of rows, in ten times the time of the product.
    is_by_onednn = machine.precision == "bf16" or machine.fp32_products == "onednn"
    round_up = is_by_onednn and machine.device.type == "cpu"
    return pack(torch.from_numpy(tokens), lengths.tolist(), machine.device, round_up=round_up)
