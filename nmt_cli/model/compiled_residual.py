"""The end of each sub-layer - dropout, sum and norm - as one kernel made by torch.compile.

Without it, each of these three operations reads and writes all rows. On a GPU, where matrix
products are fast, these memory transfers are a large part of a step; on a CPU, a small one.
"""

import functools
import os
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.model.dropout import draw_kept
from nmt_cli.model.layers import Residual


def compile_residuals(model: nn.Module) -> None:
    """Make each ``Residual`` of ``model`` end in a compiled kernel in training mode.

    The kernel is compiled at its first use and computes in fp32.
    """
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no processes for a few kernels
    for module in model.modules():
        if isinstance(module, Residual):
            module.close = functools.partial(_close, module)  # type: ignore[method-assign]


def _close(residual: Residual, rows: Tensor, branch: Tensor) -> Tensor:
    if not residual.training:  # evaluation mode would need a kernel of its own
        return Residual.close(residual, rows, branch)
    rate, kept = residual.dropout.rate, None
    if rate > 0.0 and rows.device.type == "cpu":
        kept, kept_share = draw_kept(branch.shape, rate)  # as without compilation
        rate = 1.0 - kept_share
    norm: tuple[Tensor | None, Tensor | None, float] = (None, None, 0.0)
    if not residual.pre_norm:
        norm = (residual.norm.weight, residual.norm.bias, residual.norm.eps)
    with torch.autocast(rows.device.type, enabled=False):
        return _compiled()(rows, branch, kept, rate, *norm)


@functools.cache
def _compiled() -> Callable[..., Tensor]:
    # fullgraph raises an error if a part cannot be compiled, instead of being silently slow.
    return torch.compile(add_dropout_norm, dynamic=True, fullgraph=True)


def add_dropout_norm(
    rows: Tensor,
    branch: Tensor,
    kept: Tensor | None,
    rate: float,
    weight: Tensor | None,
    bias: Tensor | None,
    epsilon: float,
) -> Tensor:
    """Return ``rows`` plus ``branch`` with dropout [T, D], normalized if there is a ``weight``.

    ``kept`` [T, D] are the elements that dropout keeps, 1 = kept; if it is None, they are drawn.
    """
    if kept is None:
        branch_left = F.dropout(branch.float(), rate)
    else:
        branch_left = branch.float() * kept * (1.0 / (1.0 - rate))
    total = rows.float() + branch_left
    if weight is None:
        return total.to(rows.dtype)
    return F.layer_norm(total, weight.shape, weight, bias, epsilon).to(branch.dtype)
