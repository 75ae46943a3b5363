"""Which parts of a model compute their gradients by our kernels in Triton, for NVIDIA's GPUs.

They are in ``model/triton_kernels/``. torch's CUDA builds for Linux bring the package triton.
"""

import importlib.util
import itertools
from typing import Literal

import torch

from nmt_cli.model.attention import MultiHeadAttention
from nmt_cli.model.dropout import KernelPlace, KernelSeed
from nmt_cli.model.layers import FeedForward, Residual
from nmt_cli.model.transformer import Transformer

Part = Literal["attention", "residuals", "activation"]
LEAST_CAPABILITY = (8, 0)  # of the GPUs that the kernels are compiled for in the tests
LARGEST_HEAD = 512  # d_k and d_v, as with one head in Table 3
LARGEST_ROW = 8192  # d_model; a program holds whole rows in registers


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
    return is_plain and model.rounded is None  # rounding changes the product


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
