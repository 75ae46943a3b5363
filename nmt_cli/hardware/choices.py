"""The options about the machine, and their value that leaves the choice to the program.

They have a module of their own, because commands need them before they import torch.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypedDict, cast, get_args

from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError, WrongUsageError

AUTO = "auto"  # of --device, --precision and --fp32-products
DecodingPrecision = Literal["fp32", "bf16", "int8"]


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
