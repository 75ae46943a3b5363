"""Dropout that draws its random bits fast on a CPU, and seeds for kernels that draw their own."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

MAX_RATE = 0.995  # a random byte decides each element; at least one of its 256 values must keep it


class Dropout(nn.Module):
    """Zeroes elements at ``rate`` while training and scales the others by 1/(1 - rate).

    On a CPU, ``F.dropout`` draws a number for each element and takes 8 % of a training step; here
    one random integer decides eight elements.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` with dropout in training, ``x`` itself in evaluation."""
        if not self.training or self.rate == 0.0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.rate)
        return self._sum(x.new_zeros(()), x)

    def add(self, x: Tensor, branch: Tensor) -> Tensor:
        """Return ``x`` plus ``branch`` with dropout."""
        if not self.training or self.rate == 0.0 or x.device.type != "cpu":
            return x + self(branch)
        return self._sum(x, branch)

    def _sum(self, x: Tensor, branch: Tensor) -> Tensor:
        kept, kept_share = draw_kept(branch.shape, self.rate)
        return _DropoutAndSum.apply(x, branch, kept, 1.0 / kept_share)  # type: ignore[no-untyped-call]


def draw_kept(shape: torch.Size, rate: float) -> tuple[Tensor, float]:
    """Return bytes on the CPU, 1 = kept and 0 = dropped, and the share kept on average.

    A random byte drops an element if it is less than ``rate`` * 256. If that is not a whole number,
    each row rounds it down or up at random, so that the rate is exact on average. The result is
    bytes instead of booleans because operations on bytes are several times faster.
    """
    rate = min(rate, MAX_RATE)
    draws = torch.empty(-(-shape.numel() // 8), dtype=torch.int64)
    draws.random_(-(2**63), None)  # plain random_() would never set the top bit
    lanes = draws.view(torch.uint8)[: shape.numel()].view(shape)
    thresholds = (rate * 256 + torch.rand(*shape[:-1], 1)).to(torch.uint8)  # rounded down
    return lanes.ge_(thresholds), 1.0 - rate


class KernelSeed:
    """The seed of the dropout in kernels, another one for each forward pass of a model.

    torch's generator draws it on the device. So it follows from ``manual_seed``, and a CUDA graph
    draws another one each time.
    """

    def __init__(self) -> None:
        self.tensor: Tensor | None = None

    def draw(self, device: torch.device) -> None:
        """Draw the seed of a forward pass."""
        self.tensor = torch.randint(2**63 - 1, (1,), device=device)


class KernelDropout(NamedTuple):
    """A dropout that a kernel computes."""

    rate: float
    seed: Tensor | None  # int64; not read if the rate is 0
    number: int  # in the model: kernels with the same seed draw differently


class KernelPlace(NamedTuple):
    """A place in a model that is computed by a kernel."""

    seed: KernelSeed
    number: int

    def drawn(self, rate: float) -> KernelDropout:
        """Return the dropout of this place."""
        return KernelDropout(rate, self.seed.tensor, self.number)


class _DropoutAndSum(torch.autograd.Function):
    """Computes product and sum in one pass over memory; ``x`` may be the number 0."""

    @staticmethod
    def forward(ctx, x: Tensor, branch: Tensor, kept: Tensor, scale: float) -> Tensor:  # type: ignore[no-untyped-def]  # noqa: ANN001
        ctx.save_for_backward(kept)
        ctx.scale, ctx.branch_dtype = scale, branch.dtype
        return torch.addcmul(x, branch, kept.to(branch.dtype), value=scale)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor | None, Tensor, None, None]:  # type: ignore[no-untyped-def]  # noqa: ANN001
        (kept,) = ctx.saved_tensors
        of_branch = gradient.to(ctx.branch_dtype)
        zero = of_branch.new_zeros(())
        of_branch = torch.addcmul(zero, of_branch, kept.to(of_branch.dtype), value=ctx.scale)
        return gradient if ctx.needs_input_grad[0] else None, of_branch, None, None
