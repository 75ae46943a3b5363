"""Which devices there are; torch is imported only where there may be a GPU."""

from __future__ import annotations

import ctypes
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from nmt_cli.hardware.choices import AUTO
from nmt_cli.hardware.cpu import SYSTEM
from nmt_cli.messages.errors import UserError, WrongUsageError

if TYPE_CHECKING:
    from types import ModuleType

DEVICE = re.compile(r"cpu|cuda(?::(?P<index>\d{1,4}))?", re.ASCII)


def device_name(name: str) -> str:
    """Return "cpu", "cuda" or "cuda:N" for a --device; "auto" is the first GPU, or else the CPU.

    Without torch it is the CPU.

    Raises UserError if there is no such device.
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
