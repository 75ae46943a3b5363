"""The options about the machine, and their value that leaves the choice to the program.

Commands need them before they import torch, which happens only where there may be a GPU.
"""

from __future__ import annotations

import ctypes
import re
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, cast, get_args

from nmt_cli.hardware.cpu import SYSTEM
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError, WrongUsageError

if TYPE_CHECKING:
    from types import ModuleType

AUTO = "auto"  # of --device and --precision
DEVICE = re.compile(r"cpu|cuda(?::(?P<index>\d{1,4}))?", re.ASCII)
DecodingPrecision = Literal["fp32", "bf16", "int8"]
Kernels = Literal["ours", "torch"]  # of gradients on a GPU


@dataclass(frozen=True, kw_only=True)
class MachineOptions:
    """The flags about the machine; one that is None or "auto" is chosen to suit the machine."""

    device: str = AUTO
    precision: str = AUTO
    threads: int | None = None
    max_tokens_per_device: int | None = None
    kernels: Kernels | None = None
    no_cuda_graphs: bool = False
    deterministic: bool = False
    exchange: Literal["fp32", "bf16"] = "fp32"  # of gradients between ranks


class Computing(NamedTuple):
    """How a translator computes."""

    precision: str
    max_tokens: int | None  # of all hypotheses in the search; None: what keeps the device busy
    cuda_graphs: bool


def choose_decoding_precision(name: str, device: str, *, has_bf16: bool) -> DecodingPrecision:
    """Return what ``name`` means on ``device`` for translating; "auto" is never int8.

    ``has_bf16`` is whether the device has instructions for bf16; a CPU without them computes in
    fp32. Raises UserError if there is no such precision, or if ``device`` does not have it.
    """
    if name not in {AUTO, *get_args(DecodingPrecision)}:
        raise WrongUsageError(f"--precision must be auto, fp32, bf16 or int8, but is {name}.")
    if name == AUTO:
        return "bf16" if has_bf16 else "fp32"
    if name == "int8" and device != "cpu":
        raise UserError(f"--precision int8 is for CPUs, the device is {device}; give bf16 or fp32.")
    if name == "bf16" and device == "cpu" and not has_bf16:
        logs.warning("bf16 is computed in fp32: this CPU has no instructions for it.")
        return "fp32"
    return cast(DecodingPrecision, name)


def device_name(name: str) -> str:
    """Return "cpu", "cuda" or "cuda:N" for a --device; "auto" is the first GPU, or else the CPU.

    Without torch, "auto" is the CPU. Raises UserError if there is no such device.
    """
    if name == AUTO:
        cuda = _cuda() if find_spec("torch") is not None else None
        return "cuda" if cuda is not None and cuda.is_available() else "cpu"
    match = DEVICE.fullmatch(name)
    if match is None:
        raise WrongUsageError(f"--device must be auto, cpu, cuda or cuda:N, but is {name}.")
    if name != "cpu" and int(match["index"] or 0) >= (visible := visible_gpus()):
        raise UserError(f"--device {name} asked for, {visible} GPUs are visible.")
    return name


def visible_gpus() -> int:
    """Return how many GPUs this process may use."""
    cuda = _cuda()
    return 0 if cuda is None else cuda.device_count()


def _cuda() -> ModuleType | None:
    """Return ``torch.cuda``; None on a machine that has no driver of a GPU."""
    if "torch" not in sys.modules and not may_have_gpu():
        return None
    from torch import cuda

    return cuda


def may_have_gpu(system: Path = SYSTEM) -> bool:
    """Return whether torch may find a GPU: one of NVIDIA's, or with ROCm one of AMD's."""
    try:
        ctypes.CDLL("libcuda.so.1")  # the driver, which torch looks for by this name too
    except OSError:
        return (system / "dev/kfd").exists()
    return True
