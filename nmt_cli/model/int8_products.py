"""Products in 8-bit integers, for translating on a CPU.

A weight matrix has one scale for each of its outputs, and every row of activations has its own, so
that the result of a row does not depend on the rows beside it. Sums of the integers are exact.
All that is not a product by a weight stays fp32.

Legend: R rows, I inputs, O outputs.
"""

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from nmt_cli.model.transformer import Transformer

LARGEST = 127
SMALLEST_SCALE = 1e-30  # of a row that is zero
SCALES = ".scales"  # ends the name of a matrix's scales


def rounded_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scale [R, 1] of each of ``rows`` [R, I], and the rows over it as int8."""
    scales = rows.abs().amax(dim=1, keepdim=True).clamp_(min=SMALLEST_SCALE).div_(LARGEST)
    return scales, (rows / scales).round_().to(torch.int8)


def as_int8(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return ``weights`` with every matrix as int8, and its scales [rows, 1] beside it."""
    stored = {}
    for name, weight in weights.items():
        if weight.dim() == 2:
            stored[f"{name}{SCALES}"], stored[name] = rounded_rows(weight.detach().float())
        else:
            stored[name] = weight
    return stored


def as_fp32(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights that are ``stored``, in fp32 if they have scales.

    Raises ValueError if scales do not fit their matrix.
    """
    weights = {name: weight for name, weight in stored.items() if not name.endswith(SCALES)}
    for scales_name in stored.keys() - weights.keys():
        name, scales = scales_name.removesuffix(SCALES), stored[scales_name]
        is_matrix = name in weights and weights[name].dim() == 2
        if not is_matrix or scales.shape != (len(weights[name]), 1):
            raise ValueError(f"{scales_name} does not have a scale for each row of {name}")
        weights[name] = weights[name].float()
        if not scales.is_meta:  # a product without memory would import torch's compiler
            weights[name].mul_(scales)
    return weights


SCALED_AT_ONCE = 1 << 18  # elements that stay in a core's cache


class Int8Linear(nn.Module):
    """x W^T + b with rounded ``x`` and ``W``."""

    weight: Tensor  # O I, int8
    scales: Tensor  # O, fp32
    bias: Tensor | None  # O, fp32

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        scales, rounded = rounded_rows(weight.detach().float())
        self.register_buffer("weight", rounded)
        self.register_buffer("scales", scales.squeeze(1))
        self.register_buffer("bias", None if bias is None else bias.detach().float().clone())

    def forward(self, rows: Tensor) -> Tensor:
        """Return the product [R, O] in fp32 of ``rows`` [R, I]."""
        row_scales, rounded = rounded_rows(rows)
        sums = torch._int_mm(rounded, self.weight.t())  # int32
        product = torch.empty_like(sums, dtype=torch.float32)
        at_once = max(1, SCALED_AT_ONCE // sums.shape[1])
        parts = (part.split(at_once) for part in (product, sums, row_scales))
        for scaled, of_sums, of_scales in zip(*parts, strict=True):
            scaled.copy_(of_sums).mul_(of_scales)
            if self.bias is None:
                scaled.mul_(self.scales)
            else:
                torch.addcmul(self.bias, scaled, self.scales, out=scaled)
        return product


def with_int8_products(model: Transformer) -> Transformer:
    """Return a copy of ``model``, an fp32 one, that multiplies by all its weights in int8."""
    linears = {id(module): module for module in model.modules() if isinstance(module, nn.Linear)}
    copied = copy.deepcopy(model, linears)  # which takes them as copies made already
    use_int8_products(copied)
    return copied


def use_int8_products(model: Transformer) -> None:
    """Let ``model``, an fp32 one, multiply by all its weights in int8.

    A weight is given up as soon as it is rounded.
    """
    places = [
        (parent, name)
        for parent in model.modules()
        for name, child in parent.named_children()
        if isinstance(child, nn.Linear)
    ]
    for parent, name in places:
        setattr(parent, name, _rounded(getattr(parent, name)))
    model.output_projection = Int8Linear(model.output_weight, model.output_bias)


def _rounded(linear: nn.Linear) -> Int8Linear:
    return Int8Linear(linear.weight, linear.bias)


def has_int8_products(model: Transformer) -> bool:
    """Return whether ``model`` multiplies in int8."""
    return isinstance(model.output_projection, Int8Linear)
