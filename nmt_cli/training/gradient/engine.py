"""The gradient of a batch, added up micro-batch by micro-batch (section 5).

Legend: T target tokens, D d_model.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from nmt_cli.corpus.batching import derived_bits
from nmt_cli.corpus.binarized import Sentences
from nmt_cli.corpus.loader import Batch, SentencePairs
from nmt_cli.hardware.device import DTYPES, Sender, sent_together
from nmt_cli.hardware.machine import Machine
from nmt_cli.hardware.machine_options import Kernels
from nmt_cli.hardware.memory import FullMemoryError, give_up_memory_of, noticing_full_memory
from nmt_cli.model.attention import MultiHeadAttention
from nmt_cli.model.attention_layout import padded_groups
from nmt_cli.model.layers import Residual
from nmt_cli.model.transformer import Transformer
from nmt_cli.model.triton_support import use_kernels
from nmt_cli.training.gradient.gradient_sum import GradientSum, SummedGradient
from nmt_cli.training.gradient.graphed_gradient import GraphedGradient
from nmt_cli.training.gradient.guided_alignment import Guidance
from nmt_cli.training.gradient.loss import LossSums, label_smoothed_cross_entropy
from nmt_cli.training.gradient.micro_batch import MicroBatch, packed, padded_to_shape


class Bf16Weights:
    """Copies of the weights of products and of post-norm's norms, in bf16.

    Embeddings stay as they are, because their gradients are sums over many rows. The parameters
    stay in fp32 too: the optimizer changes those, and checkpoints hold them.
    """

    def __init__(self, model: Transformer) -> None:
        modules: list[nn.Module] = [
            module for module in model.modules() if isinstance(module, nn.Linear)
        ]
        modules += [
            residual.norm
            for residual in model.modules()
            if isinstance(residual, Residual) and not residual.pre_norm
        ]
        self._places = [
            (module, name, parameter)
            for module in modules
            for name, parameter in module.named_parameters(recurse=False)
        ]
        self.copies = {
            parameter: nn.Parameter(parameter.detach().bfloat16())
            for _, _, parameter in self._places
        }
        self._output_weight = model.output_weight
        self.output_weight = model.output_weight.detach().bfloat16()  # without a gradient

    @torch.no_grad()
    def refresh(self) -> None:
        """Round the weights as they are now."""
        torch._foreach_copy_(
            [*self.copies.values(), self.output_weight], [*self.copies, self._output_weight]
        )

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the model compute with the copies during the block, which then get the gradients."""
        for module, name, parameter in self._places:
            module._parameters[name] = self.copies[parameter]
        try:
            yield
        finally:
            for module, name, parameter in self._places:
                module._parameters[name] = parameter


class GradientEngine(NamedTuple):
    """Computes the gradients of batches, and the losses of micro-batches, on this rank.

    Engines that differ in their kernels or in ``guidance`` share ``total``, so only one of them
    may have a batch that was launched and not summed.
    """

    model: Transformer
    start_id: int  # the first token of each target's input
    smoothing: float
    seed: int  # of dropout
    machine: Machine
    total: GradientSum  # of the micro-batches of a batch
    bf16_weights: Bf16Weights | None = None
    guidance: Guidance | None = None  # if a head learns to align words
    kernels: Kernels | None = None  # of a GPU, once they are chosen
    graphed: GraphedGradient | None = None  # if a micro-batch is one CUDA graph

    @classmethod
    def of(
        cls,
        model: Transformer,
        start_id: int,
        smoothing: float,
        seed: int,
        machine: Machine,
        guidance: Guidance | None = None,
    ) -> "GradientEngine":
        """Return an engine with the buffers beside the parameters that suit its machine."""
        bf16_weights = None
        if machine.device.type == "cuda" and machine.precision == "bf16":
            bf16_weights = Bf16Weights(model)
        total = GradientSum(
            model.parameters(),
            machine.ranks,
            is_exchanged_in_bf16=machine.exchange == "bf16",
            copies=None if bf16_weights is None else bf16_weights.copies,
        )
        return cls(
            *(model, start_id, smoothing, seed, machine, total),
            bf16_weights=bf16_weights,
            guidance=guidance,
        )

    def after(self, step: int) -> "GradientEngine":
        """Return the engine of the gradient that follows ``step`` steps."""
        guidance = self.guidance
        if guidance is not None:
            weight = guidance.weight_at(step)
            guidance = guidance._replace(weight=weight, decay_steps=None) if weight > 0 else None
        return self._replace(guidance=guidance)

    def with_kernels(self, kernels: Kernels) -> "GradientEngine":
        """Return an engine for a GPU that uses ``kernels``, with CUDA graphs of its own.

        There are no graphs where attention needs padded groups of sentences, which differ from
        batch to batch, and with a guided head, because the weight of its loss changes.
        """
        use_kernels(self.model, used=kernels == "ours")
        machine, dtype = self.machine, DTYPES[self.machine.precision]
        is_packed = all(
            each.kernel is not None or each.supports_varlen(machine.device, dtype)
            for each in self.model.modules()
            if isinstance(each, MultiHeadAttention)
        )
        graphed = None
        if machine.has_graphs and is_packed and self.guidance is None:
            graphed = GraphedGradient(self.model, self.total, machine.device)
        return self._replace(kernels=kernels, graphed=graphed)

    def arithmetic(self) -> dict[str, Any]:
        """Return what rounding depends on, for a checkpoint."""
        of_gpu = {"kernels": self.kernels, "cuda_graphs": self.graphed is not None}
        return {**self.machine.arithmetic(), **(of_gpu if self.kernels is not None else {})}

    def forget_graphs(self) -> None:
        """Give up the memory of CUDA graphs; they are recorded again when they are needed."""
        if self.graphed is not None:
            self.graphed.forget()

    def compute(self, batch: Batch) -> SummedGradient:
        """Leave the gradient of the batch's mean token loss in the parameters, equal on all ranks.

        The gradient is that of the sum of token losses over the whole batch, divided by the number
        of its target tokens, whichever rank computes which micro-batch. Dropout is seeded for each
        micro-batch. Raises FullMemoryError on all ranks if one of them runs out of memory, and
        PeerLostError if a rank is lost.
        """
        self.launch(batch)
        gradient = self.sum_over_ranks()
        gradient.read()
        return gradient

    def launch(self, batch: Batch) -> None:
        """Begin to compute the gradient of a batch, without waiting for a GPU or another rank.

        Raises FullMemoryError if the memory of a single rank is full.
        """
        self.total.begin(batch.num_target_tokens)
        if self.bf16_weights is not None:
            self.bf16_weights.refresh()
        try:
            with noticing_full_memory():
                self._accumulate(batch)
        except FullMemoryError as error:
            if self.machine.ranks.size == 1:
                raise
            give_up_memory_of(error)
            self.total.fail()  # the others learn of it when they read the figures

    def sum_over_ranks(self) -> SummedGradient:
        """Return the gradient of the batch that was launched, as ``GradientSum.over_ranks``."""
        return self.total.over_ranks(is_guided=self.guidance is not None)

    def _accumulate(self, batch: Batch) -> None:
        """Add up the losses and the gradients of this rank's micro-batches."""
        sent: Sequence[MicroBatch] = () if batch.sent is None else batch.sent.received()
        for number, (index, pairs) in enumerate(self._own(batch)):
            self._set_seed(micro_batch_seed(self.seed, batch.number, index))
            self._add(sent[number] if sent else self.on_device(pairs))

    def _add(self, tensors: MicroBatch) -> None:
        if self.graphed is None:
            self.total.add(self.losses(tensors), is_first=self.total.is_empty)
        else:
            self.graphed.add(tensors, self.losses)

    def _set_seed(self, seed: int) -> None:
        # torch.manual_seed formats the stack of calls for each kind of device that is not there.
        torch.default_generator.manual_seed(seed)
        if self.machine.device.type == "cuda":
            torch.cuda.manual_seed_all(seed)  # the current GPU need not be this one

    def _own(self, batch: Batch) -> list[tuple[int, SentencePairs]]:
        """Return the micro-batches of this rank, each with its number."""
        shared = self.machine.ranks.own(batch.micro_batches)
        # Some batches have fewer pairs than micro-batches.
        return [(index, pairs) for index, pairs in shared if len(pairs.target.lengths)]

    def sent_ahead(self, batch: Batch, sender: Sender) -> Batch:
        """Return ``batch``, whose micro-batches for this rank travel to its GPU, by one copy."""
        own = tuple(self.on_cpu(pairs) for _, pairs in self._own(batch))
        return batch._replace(sent=sender.send(own)) if own else batch

    def try_gradient(self, tensors: MicroBatch) -> None:
        """Compute the gradient of a micro-batch, for its memory or its time."""
        self.total.begin(len(tensors.target_output))
        self._add(tensors)

    def loss_sums(self, pairs: SentencePairs) -> LossSums:
        """Return the summed loss of a micro-batch that is not on its device yet."""
        plain = self._replace(graphed=None)  # a padded shape would be for a graph
        return self.losses(plain.on_device(pairs))

    def on_device(self, pairs: SentencePairs) -> MicroBatch:
        """Return the tensors of a micro-batch on the device, by one copy."""
        return sent_together(self.machine.device, self.on_cpu(pairs))

    def losses(self, tensors: MicroBatch) -> LossSums:
        """Return the summed loss of a micro-batch; products are in the machine's precision."""
        is_bf16, is_int8 = self.machine.precision == "bf16", self.model.rounding is not None
        # Validation measures weights that were not rounded for a step.
        copies = self.bf16_weights if torch.is_grad_enabled() else None
        guidance, links, alignment = self.guidance, tensors.links, None
        watching: AbstractContextManager[list[Tensor]] = nullcontext([])
        if guidance is not None and links is not None:
            watching = guidance.watching(self.model)
        with (
            copies.in_place() if copies is not None else nullcontext(),
            torch.autocast(self.machine.device.type, torch.bfloat16, enabled=is_bf16),
            watching as entered,
        ):
            rows = self.model(tensors.source, tensors.target_input)  # T D
            if guidance is not None and links is not None:
                alignment = guidance.loss(self.model, entered[0], entered[1], links)
        if is_bf16:
            rows = rows.bfloat16()
        rows, output_weight = self.model.factors(rows, self.model.output_weight)
        losses = label_smoothed_cross_entropy(
            rows,
            output_weight,
            tensors.target_output,
            self.smoothing,
            self.model.output_bias,
            None if copies is None or is_int8 else copies.output_weight,
            tensors.num_targets,
            is_by_kernel=self.kernels == "ours",
        )
        weight = 0.0 if guidance is None else guidance.weight
        return losses._replace(alignment=alignment, alignment_weight=weight)

    def on_cpu(self, pairs: SentencePairs) -> MicroBatch:
        """Return the tensors of a micro-batch on the CPU.

        The output has no spare rows, unless it is padded to a shape. The last token of each
        source, its ``</s>``, is left out if the model was made so.
        """
        source_tokens, source_lengths = pairs.source
        target_tokens, target_lengths = pairs.target
        if not self.model.config.source_eos:
            source_tokens = np.delete(source_tokens, np.cumsum(source_lengths) - 1)
            source_lengths = source_lengths - 1
        shifted = np.roll(target_tokens, 1)
        starts = np.cumsum(target_lengths) - target_lengths
        shifted[starts] = self.start_id
        sides = Sentences(source_tokens, source_lengths), Sentences(shifted, target_lengths)
        if self.graphed is not None:
            return padded_to_shape(*sides, target_tokens, self.model.config)
        source, target_input = (packed(each, self.machine) for each in sides)
        links = None
        if self.guidance is not None and pairs.links is not None:
            groups = padded_groups(target_input, source, self.machine.device)
            links = self.guidance.piece_links(pairs, groups)
        return MicroBatch(source, target_input, torch.from_numpy(target_tokens), links)


def micro_batch_seed(seed: int, batch_index: int, micro_batch: int) -> int:
    """Return the seed of a micro-batch's dropout, derived so that checkpoints need not store it."""
    return derived_bits(seed, batch_index, micro_batch) >> 1
