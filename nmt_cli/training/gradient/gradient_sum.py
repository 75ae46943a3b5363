"""The gradient of all weights as one tensor, which ranks exchange while it is computed."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from nmt_cli.hardware.device import Readback, mark_of_work
from nmt_cli.hardware.memory import FullMemoryError, noticing_full_memory
from nmt_cli.hardware.ranks import TIMEOUT_SECONDS, Ranks
from nmt_cli.training.gradient.loss import LossSums

BUCKET_BYTES = 25 << 20  # enough for a fast exchange, and few enough to begin the first one early
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


class _Bucket(NamedTuple):
    """Neighbours in the flat tensor, which are exchanged together."""

    members: range  # their numbers
    place: slice  # in the flat tensor; that of the last bucket includes the figures


class GradientSum:
    """The sum of the gradients and the losses of a batch, over its micro-batches and the ranks.

    The gradient of each weight is a part of one tensor. Call ``begin``, then ``receive`` for each
    micro-batch, then ``over_ranks``. During the last backward
    pass a bucket is sent to the other ranks as soon as its gradients are there. The buckets are
    always the same and are sent in the same order, the last weights first, so that the order of
    summation is the same after a resume.

    A CUDA graph calls ``add`` when it is recorded, and each of its replays is followed by
    ``note_received``.
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
        self._parameters = list(parameters)[::-1]  # the backward pass begins with the last ones
        self._computed_with = [(copies or {}).get(each, each) for each in self._parameters]
        self._ranks = ranks
        sizes = [-(-each.numel() // ALIGNMENT) * ALIGNMENT for each in self._parameters]
        like = self._parameters[0]
        self._flat = like.new_zeros(sum(sizes) + NUM_FIGURES, requires_grad=False)
        self._sums = like.new_zeros(NUM_SUMS, dtype=torch.float64)  # of this rank
        self._share = like.new_ones(())  # of a token
        *parts, self._figures = self._flat.split([*sizes, NUM_FIGURES])
        self._views = [
            part[: each.numel()].view_as(each)
            for part, each in zip(parts, self._parameters, strict=True)
        ]
        self._in_bf16: Tensor | None = None
        if is_exchanged_in_bf16 and ranks.size > 1:
            self._in_bf16 = torch.zeros_like(self._flat, dtype=torch.bfloat16)
        self._buckets = list(_buckets(sizes, like.element_size()))
        self._bucket_of = [
            number for number, bucket in enumerate(self._buckets) for _ in bucket.members
        ]
        for number, tensor in enumerate(self._computed_with):
            tensor.register_post_accumulate_grad_hook(partial(self._arrived, number))
        self._is_receiving = False
        self._summed: SummedGradient | None = None
        self.begin(1)

    def begin(self, num_target_tokens: int) -> None:
        """Begin the gradient of the mean loss of so many tokens.

        The gradient of the batch before is given up, and what a failed backward pass has left.
        """
        for each in (*self._parameters, *self._computed_with):
            each.grad = None
        self._sums.zero_()
        self._share.fill_(1.0 / num_target_tokens)
        self._num_tokens, self._summed = num_target_tokens, None
        self._num_received, self._num_sent = 0, 0
        self._is_last = False
        self._missing = [0 for _ in self._buckets]
        self._pending: list[dist.Work] = []

    def receive(self, losses: LossSums, *, is_last: bool) -> None:
        """Add the losses of a micro-batch, which may be the last one of this rank."""
        self._is_last = is_last
        self.add(losses, is_first=self.is_empty)
        self._num_received += 1

    @property
    def is_empty(self) -> bool:
        """Whether no gradient was received yet, so that the next one takes its place."""
        return self._num_received == 0

    def add(self, losses: LossSums, *, is_first: bool) -> None:
        """Add these losses and their gradient; if it ``is_first``, put the gradient in place."""
        values = losses.values
        self._sums[: len(values)].add_(values)
        self._missing = [len(bucket.members) for bucket in self._buckets]
        self._is_first, self._is_receiving = is_first, True
        try:
            (losses.total * self._share).backward()  # backward(share) would import sympy: 0.4 s
        finally:
            self._is_receiving = False
        for number, missing in enumerate(self._missing):
            if missing:  # this micro-batch does not need every weight
                self._collect(number)

    def note_received(self, *, is_last: bool) -> None:
        """Note that a graph adds a gradient; if it ``is_last``, send all buckets behind it."""
        self._num_received += 1
        if is_last and self._ranks.size > 1:
            self._send_in_order(len(self._buckets))

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
                norm = torch.nn.utils.get_total_norm(self._views[::-1])  # in the model's order
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
        """Send what was not sent; let the device wait until all is summed up, in the parameters."""
        if self.is_empty and not self._num_sent:  # this rank has no micro-batch
            self._flat.zero_()
        if self._ranks.size > 1:
            self._send_in_order(len(self._buckets))
            for pending in self._pending:
                self._ranks.finish(pending)
            if self._in_bf16 is not None:
                self._flat[:-NUM_FIGURES].copy_(self._in_bf16[:-NUM_FIGURES])
        self._pending = []
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

    @torch.no_grad()
    def _arrived(self, number: int, _: Tensor) -> None:
        if not self._is_receiving:
            return
        bucket = self._bucket_of[number]
        self._missing[bucket] -= 1
        if self._missing[bucket]:
            return
        self._collect(bucket)
        if self._is_last and self._ranks.size > 1:
            incomplete = (n for n, missing in enumerate(self._missing) if missing)
            self._send_in_order(next(incomplete, len(self._buckets)))

    def _collect(self, bucket: int) -> None:
        """Move the gradients of ``bucket`` to their places in the flat tensor."""
        of_types: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
        for number in self._buckets[bucket].members:
            tensor, view = self._computed_with[number], self._views[number]
            gradient, tensor.grad = tensor.grad, None
            if gradient is not None:
                totals, gradients = of_types.setdefault(gradient.dtype, ([], []))
                totals.append(view)
                gradients.append(gradient)
            elif self._is_first:
                view.zero_()
        for totals, gradients in of_types.values():
            if self._is_first:
                torch._foreach_copy_(totals, gradients)
            else:
                _add(totals, gradients)

    def _send_in_order(self, end: int) -> None:
        """Send the buckets before ``end`` that were not sent yet."""
        for bucket in self._buckets[self._num_sent : end]:
            self._num_sent += 1
            sent = self._flat[bucket.place]
            is_last = self._num_sent == len(self._buckets)
            if is_last:
                self._set_figures()
            if self._in_bf16 is not None:
                place = slice(bucket.place.start, bucket.place.stop - NUM_FIGURES * is_last)
                sent = self._in_bf16[place].copy_(self._flat[place])
            self._pending.append(self._ranks.begin_sum(sent))
            if self._in_bf16 is not None and is_last:
                self._pending.append(self._ranks.begin_sum(self._figures))


def _buckets(sizes: Sequence[int], bytes_of_number: int) -> Iterator[_Bucket]:
    """Yield the buckets of parts with these ``sizes``, each full or more than full."""
    first = start = end = 0
    for number, size in enumerate(sizes, 1):
        end += size
        if number == len(sizes):
            yield _Bucket(range(first, number), slice(start, end + NUM_FIGURES))
        elif (end - start) * bytes_of_number >= BUCKET_BYTES:
            yield _Bucket(range(first, number), slice(start, end))
            first, start = number, end


def _add(totals: list[Tensor], gradients: list[Tensor]) -> None:
    """Add ``gradients``, all of one type, to ``totals``."""
    if gradients[0].dtype != totals[0].dtype:
        # Kernels for many tensors copy from one type to another, but do not add two types.
        wide = [torch.empty_like(total) for total in totals]
        torch._foreach_copy_(wide, gradients)
        gradients = wide
    torch._foreach_add_(totals, gradients)
