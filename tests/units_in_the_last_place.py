"""How close rounded numbers have to be to exact ones."""

import torch
from torch import Tensor

BITS = {torch.bfloat16: 8, torch.float32: 24}


def errors(found: Tensor, exact: Tensor) -> float:
    """Return the largest error in units in the last place of the largest number of its row.

    The exact numbers are rounded to the type of those found first.
    """
    found, exact = found.detach(), exact.detach()
    rounded = exact.to(found.dtype).double()
    largest = rounded.abs().amax(-1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
    unit = torch.exp2(largest.log2().floor() - (BITS[found.dtype] - 1))
    return float(((found.double() - rounded).abs() / unit).max())
