"""The gradient of a batch, added up micro-batch by micro-batch (section 5).

Legend: T target tokens, D d_model.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt_cli.corpus.batching import derived_bits
from nmt_cli.corpus.loader import Batch, SentencePairs
from nmt_cli.hardware.cuda_graphs import Readback
from nmt_cli.hardware.machine import Machine
from nmt_cli.hardware.memory import FullMemoryError, noticing_full_memory
from nmt_cli.model.packing import Packed, on_device, pack_on_cpu
from nmt_cli.model.transformer import Transformer
from nmt_cli.training.loss import LossSums, label_smoothed_cross_entropy


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


class LaunchedGradient:
    """The gradient of a batch; a GPU may still be computing it and its figures."""

    def __init__(self, sums: Tensor, norm: Tensor, num_tokens: int) -> None:
        """``sums`` are the loss and the nll of all target tokens, ``norm`` that of the gradient."""
        self.norm, self.num_tokens = norm, num_tokens
        figures = torch.stack([*sums, norm.to(sums.dtype)])
        # 1 if the loss or the norm is not finite, else 0.
        self.is_infinite = figures[::2].isfinite().all().logical_not().float()
        self._figures = Readback()
        self._figures.add(figures)

    def read(self) -> Gradient:
        """Wait until the figures are known; return them."""
        ((loss, nll, norm),) = (figures.tolist() for figures in self._figures.read())
        return Gradient(loss / self.num_tokens, nll / self.num_tokens, norm, self.num_tokens)


class Objective(NamedTuple):
    """What training lowers: the loss of one model, which this rank computes on its machine."""

    model: Transformer
    start_id: int  # the first token of each target's input
    smoothing: float
    seed: int  # of dropout
    machine: Machine

    def gradient(self, batch: Batch) -> Gradient:
        """Leave the gradient of the batch's mean token loss in the parameters, equal on all ranks.

        The gradient is that of the sum of token losses over the whole batch, divided by the number
        of its target tokens, whichever rank computes which micro-batch. Dropout is seeded for each
        micro-batch. Raises FullMemoryError on all ranks if one of them runs out of memory, and
        PeerLostError if a rank is lost.
        """
        parameters, ranks = list(self.model.parameters()), self.machine.ranks
        self.model.zero_grad(set_to_none=True)
        failure, gradients = None, None
        try:
            with noticing_full_memory():
                losses = self._accumulate(batch).tolist()
                gradients = ranks.collect_gradients(parameters)
        except FullMemoryError as error:
            losses, failure = [math.nan, math.nan], error
        loss, nll, failures = ranks.sum([*losses, float(failure is not None)])
        if failures:
            try:
                raise FullMemoryError(on_all_ranks=True) from failure
            finally:
                failure = None  # its traceback would keep this frame and all activations alive
        num_tokens, norm = batch.num_target_tokens, math.nan
        if math.isfinite(loss):
            ranks.sum_gradients(parameters, gradients)
            found = [p.grad for p in parameters if p.grad is not None]
            norm = torch.nn.utils.get_total_norm(found).item()
        return Gradient(loss / num_tokens, nll / num_tokens, norm, num_tokens)

    def launched(self, batch: Batch) -> LaunchedGradient:
        """Leave the gradient of ``batch`` in the parameters, as ``gradient`` does on a single rank.

        Does not wait for a GPU. Raises FullMemoryError if the memory is full.
        """
        assert self.machine.ranks.size == 1, "ranks exchange what the CPU has read"
        self.model.zero_grad(set_to_none=True)
        with noticing_full_memory():
            sums = self._accumulate(batch)
            found = [p.grad for p in self.model.parameters() if p.grad is not None]
            norm = torch.nn.utils.get_total_norm(found)
            return LaunchedGradient(sums, norm, batch.num_target_tokens)

    def _accumulate(self, batch: Batch) -> Tensor:
        """Add up the gradients of this rank's micro-batches; return their summed losses."""
        sums = torch.zeros(2, dtype=torch.float64, device=self.machine.device)
        for index, pairs in self.machine.ranks.share(batch.micro_batches):
            if not len(pairs.target.lengths):
                continue  # the batch has fewer pairs than micro-batches
            torch.manual_seed(micro_batch_seed(self.seed, batch.number, index))
            losses = self.loss_sums(pairs)
            (losses.loss / batch.num_target_tokens).backward()
            sums += torch.stack([losses.loss.detach(), losses.nll])
        return sums

    def loss_sums(self, pairs: SentencePairs) -> LossSums:
        """Return the summed loss of a micro-batch; products are in the machine's precision."""
        source, target_input, target_output = self.tensors(pairs)
        is_bf16 = self.machine.precision == "bf16"
        with torch.autocast(self.machine.device.type, torch.bfloat16, enabled=is_bf16):
            rows = self.model(source, target_input)  # T D
        if is_bf16:
            rows = rows.bfloat16()
        return label_smoothed_cross_entropy(
            rows, self.model.output_weight, target_output, self.smoothing, self.model.output_bias
        )

    def tensors(self, pairs: SentencePairs) -> tuple[Packed, Packed, Tensor]:
        """Return a micro-batch on its device: source, target input and target output.

        The target's input is its output moved by one. The output has no spare rows. The last token
        of each source, its ``</s>``, is left out if the model was made so.
        """
        source_tokens, source_lengths = pairs.source
        target_tokens, target_lengths = pairs.target
        if not self.model.config.source_eos:
            source_tokens = np.delete(source_tokens, np.cumsum(source_lengths) - 1)
            source_lengths = source_lengths - 1
        shifted = np.roll(target_tokens, 1)
        starts = np.cumsum(target_lengths) - target_lengths
        shifted[starts] = self.start_id
        sides = [
            _packed(source_tokens, source_lengths, self.machine),
            _packed(shifted, target_lengths, self.machine),
        ]
        outputs = [torch.from_numpy(target_tokens)]
        (source, target_input), (target_output,) = on_device(sides, outputs, self.machine.device)
        return source, target_input, target_output


def micro_batch_seed(seed: int, batch_index: int, micro_batch: int) -> int:
    """Return the seed of a micro-batch's dropout, derived so that checkpoints need not store it."""
    return derived_bits(seed, batch_index, micro_batch) >> 1


def _packed(tokens: NDArray[np.int64], lengths: NDArray[np.int64], machine: Machine) -> Packed:
    # oneDNN compiles a product for each new number of rows, in ten times the time of the product.
    is_by_onednn = machine.precision == "bf16" or machine.fp32_products == "onednn"
    round_up = is_by_onednn and machine.device.type == "cpu"
    return pack_on_cpu(torch.from_numpy(tokens), lengths.tolist(), round_up=round_up)
