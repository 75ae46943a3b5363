"""Dropout whose random bits are cheap on a CPU."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ALLOWED_RATE_ERROR = 0.01  # relative; a rate that bytes miss by more is drawn from 16 bits


class Dropout(nn.Module):
    """Zeroes elements at ``rate`` while training and scales the others by 1/(1 - rate).

    On a CPU ``F.dropout`` draws every element by itself and takes 8 % of a training step; here
    one random integer decides eight elements (four where bytes cannot hold the rate). The rate
    is then a multiple of 1/256, or of 1/65536 where that is more than 1 % off; the scale follows
    it.
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
        keep, kept_share = draw_keep_mask(x.shape, self.rate)
        return _DropoutFunction.apply(x, keep, 1.0 / kept_share)  # type: ignore[no-untyped-call]


def draw_keep_mask(shape: torch.Size, rate: float) -> tuple[Tensor, float]:
    """Return a mask on the CPU, True = keep, and the exact share it keeps on average."""
    lane, levels = torch.uint8, 256
    threshold = round(rate * levels)
    if threshold == levels or abs(threshold / levels - rate) > ALLOWED_RATE_ERROR * rate:
        lane, levels = torch.uint16, 65536
        threshold = min(levels - 1, max(1, round(rate * levels)))  # some drop and some stay
    lanes_per_draw = 8 // lane.itemsize
    draws = torch.empty(-(-shape.numel() // lanes_per_draw), dtype=torch.int64)
    draws.random_(-(2**63), None)  # plain random_() would never set the top bit
    lanes = draws.view(lane)[: shape.numel()]
    if lane is torch.uint16:
        # uint16 has no comparison kernel; the same bits as signed numbers, shifted, compare alike
        keep = lanes.view(torch.int16) >= threshold - levels // 2
    else:
        keep = lanes >= threshold
    return keep.view(shape), 1.0 - threshold / levels


class _DropoutFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, keep: Tensor, scale: float) -> Tensor:  # type: ignore[no-untyped-def]  # noqa: ANN001
        ctx.save_for_backward(keep)
        ctx.scale = scale
        return torch.where(keep, x, 0.0).mul_(scale)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[no-untyped-def]  # noqa: ANN001
        (keep,) = ctx.saved_tensors
        return torch.where(keep, gradient, 0.0).mul_(ctx.scale), None, None
