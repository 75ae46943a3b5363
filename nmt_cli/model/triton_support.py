"""Our kernels in Triton, for NVIDIA's GPUs: what they suit, who uses them, how far they are off.

They are in ``model/triton_kernels/``. torch's CUDA builds for Linux bring the package triton.
"""

import importlib.util
import itertools
import math
from collections.abc import Iterable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from nmt_cli.model.attention import MultiHeadAttention
from nmt_cli.model.dropout import KernelPlace, KernelSeed
from nmt_cli.model.layers import FeedForward, Residual
from nmt_cli.model.transformer import Transformer

Part = Literal["attention", "residuals", "activation"]
LEAST_CAPABILITY = (8, 0)  # of the GPUs that the kernels are compiled for in the tests
LARGEST_HEAD = 512  # d_k and d_v, as with one head in Table 3
LARGEST_ROW = 8192  # d_model; a program holds whole rows in registers
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


def suits_kernels(model: Transformer, part: Part) -> bool:
    """Return whether the kernels can compute a ``part`` of this model."""
    config = model.config
    if part == "attention":
        attentions = (each for each in model.modules() if isinstance(each, MultiHeadAttention))
        return all(max(each.d_k, each.d_v) <= LARGEST_HEAD for each in attentions)
    if part == "residuals":
        return config.d_model <= LARGEST_ROW
    is_plain = config.activation == "relu" and config.feed_forward_biases
    return is_plain and model.rounding is None  # rounding changes the product


def use_kernels(model: Transformer, part: Part, *, used: bool) -> None:
    """Let the kernels compute the gradients of a ``part`` of ``model`` from now on, or torch.

    Nothing changes where there is no gradient: in validation and in the search.
    """
    seed = model.kernel_seed or KernelSeed()
    kinds = {"attention": MultiHeadAttention, "residuals": Residual, "activation": FeedForward}
    numbers = itertools.count()
    for module in model.modules():
        if isinstance(module, FeedForward) and part == "activation":
            module.is_by_kernel = used
        elif isinstance(module, MultiHeadAttention | Residual):
            number = next(numbers)
            if isinstance(module, kinds[part]):
                module.kernel = KernelPlace(seed, number) if used else None
    places = (getattr(module, "kernel", None) for module in model.modules())
    model.kernel_seed = seed if any(places) else None  # torch draws as ever without kernels


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
