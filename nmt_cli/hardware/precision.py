"""The precision in which a device computes."""

import copy
from typing import Literal, cast

import torch

from nmt_cli.errors import UserError
from nmt_cli.hardware.choices import AUTO
from nmt_cli.model.transformer import Transformer

Precision = Literal["fp32", "bf16"]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
FIRST_CUDA_WITH_BF16 = (8, 0)  # Ampere


def choose_precision(name: str, device: torch.device) -> Precision:
    """Return what ``name`` means on ``device``; "auto" is bf16 where that is fast."""
    if name == AUTO:
        return "bf16" if bf16_is_fast(device) else "fp32"
    if name not in DTYPES:
        raise UserError(f"--precision must be auto, fp32 or bf16, but is {name}.")
    return cast(Precision, name)


def bf16_is_fast(device: torch.device) -> bool:
    """Return whether the hardware multiplies bf16; without that, bf16 is far slower than fp32."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= FIRST_CUDA_WITH_BF16
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def at_precision(model: Transformer, precision: Precision) -> Transformer:
    """Return ``model`` itself if it has ``precision``, else a copy with rounded weights."""
    if next(model.parameters()).dtype == DTYPES[precision]:
        return model
    return copy.deepcopy(model).to(DTYPES[precision])
