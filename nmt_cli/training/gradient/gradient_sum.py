"""The gradient of all weights as one tensor, which ranks exchange."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nmt_cli.hardware.device import Readback, mark_of_work
from nmt_cli.hardware.memory import FullMemoryError, noticing_full_memory
from nmt_cli.hardware.ranks import TIMEOUT_SECONDS, Ranks
from nmt_cli.training.gradient.loss import LossSums

ALIGNMENT = 4  # numbers; kernels read 16 bytes at a time
NUM_SUMS = 4  # loss, nll, loss of a guided head, and ranks that failed
NUM_FIGURES = 2 * NUM_SUMS  # behind the gradient: two parts of each sum


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


class SummedGradient(NamedTuple):
    """The gradient of a batch, which the parameters hold; a GPU may still be computing it."""

    norm: Tensor  # before clipping
    is_infinite: Tensor  # 1 if the weights must stay as they are, else 0
    num_tokens: int  # target tokens
    is_guided: bool  # whether a head learns to align words
    ranks: Ranks
    figures: Readback

    def has_arrived(self) -> bool:
        """Return whether the figures are known, so that ``read`` need not wait for them."""
        return self.figures.have_arrived()

    def read(self, timeout: Callable[[], float] = lambda: TIMEOUT_SECONDS) -> GradientFigures:
        """Wait until the figures are known; return them.

        Raises FullMemoryError if the memory of a rank was full; then all ranks raise it. Raises
        PeerLostError if the other ranks have not answered after ``timeout()`` seconds.
        """
        self.ranks.wait_for(self.figures.have_arrived, timeout)
        ((loss, norm, alignment, nll, failed),) = (each.tolist() for each in self.figures.read())
        if failed:
            raise FullMemoryError(on_all_ranks=True)
        loss, nll, alignment = (each / self.num_tokens for each in (loss, nll, alignment))
        of_head = alignment if self.is_guided else None
        return GradientFigures(loss, nll, norm, self.num_tokens, of_head)


class GradientSum:
    """The sum of the gradients and the losses of a batch, over its micro-batches and the ranks.

    The gradient of each weight is a part of one tensor. Call ``begin``, then ``add`` for each
    micro-batch, then ``over_ranks``. ``add`` is called while a CUDA graph is recorded, but not when
    it is replayed: set ``is_empty`` to False then.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        ranks: Ranks,
        *,
        is_exchanged_in_bf16: bool = False,
        copies: Mapping[nn.Parameter, Tensor] | None = None,
    ) -> None:
        """``copies`` are the tensors by which the model computes in place of its parameters."""
        self._parameters = list(parameters)
        self._computed_with = [(copies or {}).get(each, each) for each in self._parameters]
        self._ranks = ranks
        sizes = [-(-each.numel() // ALIGNMENT) * ALIGNMENT for each in self._parameters]
        like = self._parameters[0]
        self._flat = like.new_zeros(sum(sizes) + NUM_FIGURES, requires_grad=False)
        self._sums = like.new_zeros(NUM_SUMS, dtype=torch.float64)  # of this rank
        self._share = like.new_ones(())  # of a token
        self._gradient, self._figures = self._flat.split([sum(sizes), NUM_FIGURES])
        self._views = [
            part[: each.numel()].view_as(each)
            for part, each in zip(self._gradient.split(sizes), self._parameters, strict=True)
        ]
        self._in_bf16: Tensor | None = None
        if is_exchanged_in_bf16 and ranks.size > 1:
            self._in_bf16 = torch.zeros_like(self._gradient, dtype=torch.bfloat16)
        self.begin(1)

    def begin(self, num_target_tokens: int) -> None:
        """Begin the gradient of the mean loss of so many tokens.

        The gradient of the batch before is given up, and what a failed backward pass has left.
        """
        for each in (*self._parameters, *self._computed_with):
            each.grad = None
        self._sums.zero_()
        self._share.fill_(1.0 / num_target_tokens)
        self._num_tokens = num_target_tokens
        self._summed: SummedGradient | None = None
        self.is_empty = True  # so that the next gradient takes the place of what is there

    def add(self, losses: LossSums, *, is_first: bool) -> None:
        """Add the losses of a micro-batch and their gradient.

        If it ``is_first``, which is known when a graph is recorded, put the gradient in place.
        """
        values = losses.values
        self._sums[: len(values)].add_(values)
        (losses.total * self._share).backward()  # backward(share) would import sympy: 0.4 s
        self._collect(is_first=is_first)
        self.is_empty = False

    def wait_for_ranks(self) -> None:
        """Wait until exchanges are done. Raises PeerLostError if another rank has not answered."""
        mark = mark_of_work(self._flat.device)
        if mark is not None:
            self._ranks.wait_for(mark.query, lambda: TIMEOUT_SECONDS)

    def fail(self) -> None:
        """Send infinite losses and a failure: this rank could not compute its gradient."""
        self._sums.fill_(torch.inf)
        self._sums[-1] = 1.0

    def over_ranks(self, *, is_guided: bool = False) -> SummedGradient:
        """Leave the sum of all ranks in the parameters, for which the device waits, not the CPU.

        Further calls return the same. Raises FullMemoryError if the memory is full, and
        PeerLostError if a rank is lost.
        """
        if self._summed is None:
            with noticing_full_memory():
                self._exchange()
                norm = torch.nn.utils.get_total_norm(self._views)
                loss, nll, alignment, failed = self._sums_of_ranks()
                figures = torch.stack([loss, norm.to(loss.dtype), alignment, nll, failed])
                # The nll is part of the loss.
                is_infinite = figures[:3].isfinite().all().logical_not().float()
                read = Readback()
                read.add(figures)
            self._summed = SummedGradient(
                norm, is_infinite, self._num_tokens, is_guided, self._ranks, read
            )
        return self._summed

    def _exchange(self) -> None:
        """Let the device wait until the gradients of all ranks are summed up, in the parameters."""
        if self.is_empty:  # this rank has no micro-batch
            self._flat.zero_()
        if self._ranks.size > 1:
            self._set_figures()
            if self._in_bf16 is None:
                self._ranks.add_up(self._flat)
            else:
                self._ranks.add_up(self._in_bf16.copy_(self._gradient))
                self._ranks.add_up(self._figures)
                self._gradient.copy_(self._in_bf16)
        for parameter, view in zip(self._parameters, self._views, strict=True):
            parameter.grad = view

    def _sums_of_ranks(self) -> Tensor:
        """Return the sums of all ranks: loss, nll, loss of a guided head, number of failures."""
        if self._ranks.size == 1:
            return self._sums
        return self._figures.double().view(2, NUM_SUMS).sum(0)

    def _set_figures(self) -> None:
        # Two parts, because fp32 would round the sums.
        high = self._sums.to(self._flat.dtype)
        low = (self._sums - high).nan_to_num(0.0).to(self._flat.dtype)
        self._figures.copy_(torch.cat([high, low]))

    def _collect(self, *, is_first: bool) -> None:
        """Move the gradients to their places in the flat tensor."""
        of_types: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
        for tensor, view in zip(self._computed_with, self._views, strict=True):
            gradient, tensor.grad = tensor.grad, None
            if gradient is not None:
                totals, gradients = of_types.setdefault(gradient.dtype, ([], []))
                totals.append(view)
                gradients.append(gradient)
            elif is_first:  # this micro-batch does not need every weight
                view.zero_()
        for totals, gradients in of_types.values():
            if is_first:
                torch._foreach_copy_(totals, gradients)
            else:
                _add(totals, gradients)


def _add(totals: list[Tensor], gradients: list[Tensor]) -> None:
    """Add ``gradients``, all of one type, to ``totals``."""
    if gradients[0].dtype != totals[0].dtype:
        # Kernels for many tensors copy from one type to another, but do not add two types.
        wide = [torch.empty_like(total) for total in totals]
        torch._foreach_copy_(wide, gradients)
        gradients = wide
    torch._foreach_add_(totals, gradients)
