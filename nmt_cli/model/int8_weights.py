"""Weights stored in 8-bit integers: each matrix with one scale for each of its rows.

A quarter of the bytes of fp32. Vectors stay as they are.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

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
