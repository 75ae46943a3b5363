"""Our kernels in Triton, for NVIDIA's GPUs: what they suit, who uses them, how far they are off.

They are in ``model/triton_kernels/``. torch's CUDA builds for Linux bring the package triton.
"""

import importlib.util
import itertools
import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from nmt_cli.model.attention import MultiHeadAttention
from nmt_cli.model.dropout import KernelPlace, KernelSeed
from nmt_cli.model.layers import FeedForward, Residual
from nmt_cli.model.transformer import Transformer

LEAST_CAPABILITY = (8, 0)  # of the GPUs that the kernels are compiled for in the tests
MOST = 2.0  # times the error of torch, that a kernel may be off
# The least error that counts as torch's, as a share of the norm of a tensor: that of rounding once,
# and in fp32 that of adding up in another order.
LEAST_ERROR = {torch.bfloat16: 2.0**-9, torch.float32: 5e-6}


class KernelError(NamedTuple):
    """How far something is off, as a multiple of what is allowed, and in words."""

    multiple: float
    text: str


def has_triton(device: torch.device) -> bool:
    """Return whether Triton can be imported, and compiles for ``device``."""
    return (
        importlib.util.find_spec("triton") is not None
        and torch.version.hip is None
        and torch.cuda.get_device_capability(device) >= LEAST_CAPABILITY
    )


def has_relu_kernel(model: Transformer) -> bool:
    """Return whether a kernel can compute the activation of ``model``."""
    is_plain = model.config.activation == "relu" and model.config.feed_forward_biases
    return is_plain and model.rounding is None  # rounding changes the product


def use_kernels(model: Transformer, *, used: bool) -> None:
    """Let the kernels compute the gradients of ``model``, or torch, from now on.

    Nothing changes where there is no gradient: in validation and in the search.
    """
    seed = model.kernel_seed or KernelSeed()
    numbers = itertools.count()
    # Residual sums compute gradients with their sub-layers. With pre-norm, the rows of the sum are
    # not those that enter the sub-layer, and rounding changes the products.
    is_joined = used and model.config.norm == "post" and model.rounding is None
    for module in model.modules():
        if isinstance(module, FeedForward | MultiHeadAttention):
            module.is_joined = is_joined
        if isinstance(module, FeedForward):
            module.is_by_kernel = used and has_relu_kernel(model)
        elif isinstance(module, MultiHeadAttention | Residual):
            place = KernelPlace(seed, next(numbers))
            module.kernel = place if used else None
    model.kernel_seed = seed if used else None  # torch draws as ever without kernels


def failure_of_kernel(error: Exception) -> str:
    """Return one line about an error of Triton, its compilers or the driver."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def error_of_kernel(
    name: str, dtypes: Iterable[torch.dtype], exact: Tensor, by_torch: Tensor, by_kernel: Tensor
) -> KernelError:
    """Return how far a kernel is off; it computes numbers of these types.

    ``exact`` is in fp64. Twice the error of torch is allowed.
    """
    differences = [each.double() - exact for each in (by_torch, by_kernel)]
    size, own, ours = torch.stack([each.norm() for each in (exact, *differences)]).tolist()
    allowed = MOST * max(own, size * max(LEAST_ERROR[dtype] for dtype in dtypes))
    multiple = ours / allowed if allowed > 0.0 else (math.inf if ours > 0.0 else 0.0)
    text = f"{name} is off by {ours / (size or 1.0):.1%}, torch's by {own / (size or 1.0):.1%}"
    return KernelError(math.inf if math.isnan(multiple) else multiple, text)
