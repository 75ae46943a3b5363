"""The gradient of a batch, added up micro-batch by micro-batch (section 5).

Legend: T target tokens, D d_model.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from nmt_cli.corpus.batching import derived_bits
from nmt_cli.corpus.binarized import Sentences
from nmt_cli.corpus.loader import Batch, SentencePairs
from nmt_cli.hardware.device import Readback, Sender, sent_together
from nmt_cli.hardware.machine import Machine
from nmt_cli.hardware.memory import FullMemoryError, give_up_memory_of, noticing_full_memory
from nmt_cli.hardware.ranks import TIMEOUT_SECONDS
from nmt_cli.model.attention_layout import padded_groups
from nmt_cli.model.layers import Residual
from nmt_cli.model.transformer import PaddedPairs, Transformer
from nmt_cli.training.flat_gradient import FlatGradient
from nmt_cli.training.graphed_gradient import GraphedGradient, MicroBatch, packed, padded_to_shape
from nmt_cli.training.guided_alignment import Guidance
from nmt_cli.training.loss import LossSums, label_smoothed_cross_entropy


class RoundedWeights:
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
        self.leaves = {
            parameter: nn.Parameter(parameter.detach().bfloat16())
            for _, _, parameter in self._places
        }
        self._output_weight = model.output_weight
        self.output_weight = model.output_weight.detach().bfloat16()  # without a gradient

    @torch.no_grad()
    def refresh(self) -> None:
        """Round the weights as they are now."""
        torch._foreach_copy_(
            [*self.leaves.values(), self.output_weight], [*self.leaves, self._output_weight]
        )

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the model compute with the copies during the block, which then get the gradients."""
        for module, name, parameter in self._places:
            module._parameters[name] = self.leaves[parameter]
        try:
            yield
        finally:
            for module, name, parameter in self._places:
                module._parameters[name] = parameter


class GradientFigures(NamedTuple):
    """Figures of a batch and its gradient."""

    loss: float  # label-smoothed, mean of a target token
    nll: float  # mean of a target token
    norm: float  # of the whole gradient, before clipping
    num_tokens: int  # target tokens
    alignment: float | None = None  # the loss of a guided head, as a mean of a target token

    @property
    def is_finite(self) -> bool:
        """Whether the losses and the gradient are finite, so that the weights may be updated."""
        return all(map(math.isfinite, (self.loss, self.norm, self.alignment or 0.0)))


class Gradient:
    """The gradient of a batch; a GPU may still be computing it and its figures.

    ``sum_over_ranks`` comes before everything else.
    """

    norm: Tensor  # before clipping
    is_infinite: Tensor  # 1 if the weights must stay as they are, else 0

    def __init__(self, objective: "Objective", num_tokens: int) -> None:
        self._objective, self.num_tokens = objective, num_tokens
        self._readback: Readback | None = None
        self._figures: GradientFigures | None = None

    def sum_over_ranks(self) -> None:
        """Leave the sum of all ranks in the parameters, for which the device waits, not the CPU.

        Further calls do nothing. Raises FullMemoryError if the memory is full, and PeerLostError if
        a rank is lost.
        """
        if self._readback is not None:
            return
        with noticing_full_memory():
            self.norm = torch.nn.utils.get_total_norm(self._objective.flat.finish())
            loss, nll, alignment, failed = self._objective.flat.sums()
            figures = torch.stack([loss, self.norm.to(loss.dtype), alignment, nll, failed])
            # The nll is part of the loss.
            self.is_infinite = figures[:3].isfinite().all().logical_not().float()
            self._readback = Readback()
            self._readback.add(figures)

    def has_arrived(self) -> bool:
        """Return whether the figures are known, so that ``read`` need not wait for them."""
        assert self._readback is not None
        return self._readback.have_arrived()

    def read(self, timeout: Callable[[], float] = lambda: TIMEOUT_SECONDS) -> GradientFigures:
        """Wait until the figures are known; return them.

        Raises FullMemoryError if the memory of a rank was full; then all ranks raise it. Raises
        PeerLostError if the other ranks have not answered after ``timeout()`` seconds.
        """
        if self._figures is not None:
            return self._figures
        assert self._readback is not None
        self._objective.machine.ranks.wait_for(self._readback.have_arrived, timeout)
        ((loss, norm, alignment, nll, failed),) = (each.tolist() for each in self._readback.read())
        if failed:
            raise FullMemoryError(on_all_ranks=True)
        loss, nll, alignment = (each / self.num_tokens for each in (loss, nll, alignment))
        of_head = None if self._objective.guidance is None else alignment
        self._figures = GradientFigures(loss, nll, norm, self.num_tokens, of_head)
        return self._figures


class Objective(NamedTuple):
    """What training lowers: the loss of one model, which this rank computes on its machine."""

    model: Transformer
    start_id: int  # the first token of each target's input
    smoothing: float
    seed: int  # of dropout
    machine: Machine
    flat: FlatGradient  # that of the weights
    rounded: RoundedWeights | None = None
    guidance: Guidance | None = None  # if a head learns to align words
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
    ) -> "Objective":
        """Return the objective with the buffers beside the parameters that suit its machine."""
        rounded = None
        # Compiled kernels keep the parameters that they were compiled with.
        is_rounded = machine.precision == "bf16" and not machine.is_compiled
        if machine.device.type == "cuda" and is_rounded:
            rounded = RoundedWeights(model)
        flat = FlatGradient(
            model.parameters(),
            machine.ranks,
            is_exchanged_in_bf16=machine.exchange == "bf16",
            leaves=None if rounded is None else rounded.leaves,
        )
        return cls(model, start_id, smoothing, seed, machine, flat, rounded, guidance)

    def after(self, step: int) -> "Objective":
        """Return the objective of the gradient that follows ``step`` steps."""
        guidance = self.guidance
        if guidance is not None:
            weight = guidance.weight_at(step)
            guidance = guidance._replace(weight=weight, decay_steps=None) if weight > 0 else None
        return self._replace(guidance=guidance)

    def with_graphs(self) -> "Objective":
        """Return this objective with graphs of its own, if its machine launches them."""
        graphed = None
        if self.machine.launches == "graph":
            graphed = GraphedGradient(self.model, self.flat, self.machine.device)
        return self._replace(graphed=graphed)

    def facts(self) -> dict[str, Any]:
        """Return the facts for a checkpoint: launches are "rooms" if graphs cannot be recorded."""
        machine = self.machine
        if self.graphed is not None and self.graphed.cannot_record:
            machine = machine._replace(launches="rooms")
        return machine.facts()

    def forget_graphs(self) -> None:
        """Give up the memory of CUDA graphs; they are recorded again when they are needed."""
        if self.graphed is not None:
            self.graphed.forget()

    def gradient(self, batch: Batch) -> Gradient:
        """Leave the gradient of the batch's mean token loss in the parameters, equal on all ranks.

        The gradient is that of the sum of token losses over the whole batch, divided by the number
        of its target tokens, whichever rank computes which micro-batch. Dropout is seeded for each
        micro-batch. Raises FullMemoryError on all ranks if one of them runs out of memory, and
        PeerLostError if a rank is lost.
        """
        gradient = self.launched(batch)
        gradient.sum_over_ranks()
        gradient.read()
        return gradient

    def launched(self, batch: Batch) -> Gradient:
        """Begin to compute the gradient of a batch, without waiting for a GPU or another rank.

        Raises FullMemoryError if the memory of a single rank is full.
        """
        self.flat.begin(batch.num_target_tokens)
        if self.rounded is not None:
            self.rounded.refresh()
        try:
            with noticing_full_memory():
                self._accumulate(batch)
        except FullMemoryError as error:
            if self.machine.ranks.size == 1:
                raise
            give_up_memory_of(error)
            self.flat.fail()  # the others learn of it when they read the figures
        return Gradient(self, batch.num_target_tokens)

    def _accumulate(self, batch: Batch) -> None:
        """Add up the losses and the gradients of this rank's micro-batches."""
        mine = self._own(batch)
        sent: Sequence[MicroBatch] = () if batch.sent is None else batch.sent.received()
        for number, (index, pairs) in enumerate(mine):
            self._set_seed(micro_batch_seed(self.seed, batch.number, index))
            tensors = sent[number] if sent else self.on_device(pairs)
            self._add(tensors, is_last=number == len(mine) - 1)

    def _add(self, tensors: MicroBatch, *, is_last: bool) -> None:
        if self.graphed is None:
            self.flat.receive(self.losses(tensors), is_last=is_last)
        else:
            self.graphed.add(tensors, self.losses, is_last=is_last)

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
        self.flat.begin(len(tensors.target_output))
        self._add(tensors, is_last=False)

    def loss_sums(self, pairs: SentencePairs) -> LossSums:
        """Return the summed loss of a micro-batch that is not on its device yet."""
        plain = self._replace(graphed=None)  # a padded shape would be for a graph
        return self.losses(plain.on_device(pairs))

    def on_device(self, pairs: SentencePairs) -> MicroBatch:
        """Return the tensors of a micro-batch on the device, by one copy."""
        return sent_together(self.machine.device, self.on_cpu(pairs))

    def losses(self, tensors: MicroBatch) -> LossSums:
        """Return the summed loss of a micro-batch; products are in the machine's precision."""
        is_bf16, is_int8 = self.machine.precision == "bf16", self.model.rounded is not None
        # Validation measures weights that were not rounded for a step.
        rounded = self.rounded if torch.is_grad_enabled() else None
        guidance, links, alignment = self.guidance, tensors.links, None
        watching: AbstractContextManager[list[Tensor]] = nullcontext([])
        if guidance is not None and links is not None:
            watching = guidance.watching(self.model)
        with (
            rounded.in_place() if rounded is not None else nullcontext(),
            torch.autocast(self.machine.device.type, torch.bfloat16, enabled=is_bf16),
            watching as entered,
        ):
            rows = self.model(tensors.source, tensors.target_input, tensors.padded)  # T D
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
            None if rounded is None or is_int8 else rounded.output_weight,
            tensors.num_targets,
            is_by_kernel=self.machine.loss == "triton",
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
        padded = None
        if self.machine.attention == "padded":
            padded = PaddedPairs.of(source, target_input, self.machine.device)
        links = None
        if self.guidance is not None and pairs.links is not None:
            device = self.machine.device
            groups = padded.memory if padded else padded_groups(target_input, source, device)
            links = self.guidance.piece_links(pairs, groups)
        return MicroBatch(source, target_input, torch.from_numpy(target_tokens), padded, links)


def micro_batch_seed(seed: int, batch_index: int, micro_batch: int) -> int:
    """Return the seed of a micro-batch's dropout, derived so that checkpoints need not store it."""
    return derived_bits(seed, batch_index, micro_batch) >> 1
