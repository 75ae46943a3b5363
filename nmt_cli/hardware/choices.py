"""The options about the machine, and their value that leaves the choice to the program.

They have a module of their own, because commands need them before they import torch.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypedDict

AUTO = "auto"  # of --device, --precision and --fp32-products


class MachineOptions(TypedDict, total=False):
    """The flags about the machine; one that is missing or None is chosen to suit the machine."""

    device: str
    precision: str
    fp32_products: str
    threads: int | None
    max_tokens_per_device: int | None
    compile: bool
    deterministic: bool
    exchange: Literal["fp32", "bf16"]  # of gradients between ranks


class Computing(NamedTuple):
    """How a translator computes."""

    precision: str
    fp32_products: str
    max_tokens: int | None  # of all hypotheses in the search; None: what keeps the device busy
    cuda_graphs: bool
