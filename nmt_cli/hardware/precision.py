"""The precision in which a device computes; int8 is for translating only."""

from typing import Literal, cast, get_args

import torch

from nmt_cli.hardware.choices import AUTO
from nmt_cli.hardware.cpu import read_cpu
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError

Precision = Literal["fp32", "bf16"]
DecodingPrecision = Literal["fp32", "bf16", "int8"]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
FIRST_CUDA_WITH_BF16 = (8, 0)  # Ampere
# CPUs with one of them multiply int8 faster than fp32: four times on Zen 4.
INT8_FLAGS = frozenset({"avx512_vnni", "avx_vnni", "amx_int8"})


def choose_precision(name: str, device: torch.device) -> Precision:
    """Return what ``name`` means on ``device``; "auto" is bf16 where that is fast."""
    if name == AUTO:
        return "bf16" if bf16_is_fast(device) else "fp32"
    if name not in DTYPES:
        raise UserError(f"--precision must be auto, fp32 or bf16, but is {name}.")
    return cast(Precision, name)


def choose_decoding_precision(name: str, device: torch.device) -> DecodingPrecision:
    """Return what ``name`` means on ``device`` for translating; "auto" is never int8.

    On a CPU without fast products in int8 that is fp32, and a warning is logged. Raises UserError
    if there is no such precision, or none for ``device``.
    """
    if name not in {AUTO, *get_args(DecodingPrecision)}:
        raise UserError(f"--precision must be auto, fp32, bf16 or int8, but is {name}.")
    if name != "int8":
        return choose_precision(name, device)
    if device.type != "cpu":
        raise UserError(f"--precision int8 is for CPUs, the device is {device}; give bf16 or fp32.")
    if read_cpu().flags.isdisjoint(INT8_FLAGS):
        logs.warning(
            "this CPU multiplies 8-bit integers no faster (it lists none of "
            f"{', '.join(sorted(INT8_FLAGS))}), so --precision int8 computes in fp32."
        )
        return "fp32"
    return "int8"


def bf16_is_fast(device: torch.device) -> bool:
    """Return whether the hardware multiplies bf16; without that, bf16 is far slower than fp32."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= FIRST_CUDA_WITH_BF16
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
