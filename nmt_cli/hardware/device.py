"""The device that computes, and the CPU threads."""

from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt_cli.hardware.choices import AUTO
from nmt_cli.messages.errors import UserError


def choose_device(name: str) -> torch.device:
    """Return the device called ``name``; "auto" is the first GPU, or else the CPU."""
    if name == AUTO:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise _unknown_device(name) from None
    if device.type not in {"cpu", "cuda"}:
        raise _unknown_device(name)
    visible = visible_gpus() if device.type == "cuda" else 1
    if (device.index or 0) >= visible:
        raise UserError(f"--device {name} asked for, {visible} GPUs are visible.")
    return device


def visible_gpus() -> int:
    """Return how many GPUs this process may use."""
    return torch.cuda.device_count()


def set_num_threads(threads: int) -> None:
    """Compute with this many CPU threads."""
    torch.set_num_threads(threads)


def useful_threads(device: torch.device) -> int:
    """Return how many CPU threads are busy: torch's number on a CPU, one that drives a GPU."""
    return torch.get_num_threads() if device.type == "cpu" else 1


def sent_to(device: torch.device, numbers: Sequence[Any] | NDArray[Any]) -> Tensor:
    """Return ``numbers`` as a tensor on ``device``, without waiting for a GPU."""
    tensor = torch.tensor(numbers)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


def finish_work(device: torch.device) -> None:
    """Wait until a GPU has done all work on its current stream."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


def _unknown_device(name: str) -> UserError:
    return UserError(f"--device must be auto, cpu, cuda or cuda:N, but is {name}.")
