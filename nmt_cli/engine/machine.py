"""Where training runs; nothing of it changes what is computed, up to rounding."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import torch

from nmt_cli.decoding.precision import choose_device, choose_precision, set_num_threads
from nmt_cli.engine.memory import default_max_tokens, keep_freed_memory
from nmt_cli.recipe.schema import Recipe

if TYPE_CHECKING:
    from typing_extensions import Unpack

REPORTED_PACKAGES = ("nmt-cli", "torch", "numpy", "sentencepiece", "sacrebleu", "safetensors")


class Machine(NamedTuple):
    """Device, arithmetic and the size of a micro-batch."""

    device: torch.device
    precision: str  # fp32 | bf16
    max_tokens: int  # of either side of a micro-batch

    def describe(self) -> dict[str, Any]:
        """Return what a run's log should say of it."""
        return {
            "versions": {name: metadata.version(name) for name in REPORTED_PACKAGES},
            "python": platform.python_version(),
            "machine": platform.platform(),
            "device": str(self.device),
            "precision": self.precision,
            "threads": torch.get_num_threads(),
            "cores": os.cpu_count(),
            "max_tokens_per_device": self.max_tokens,
        }


class MachineOptions(TypedDict, total=False):
    """The flags that choose a machine; what is left out or None is chosen to fit it."""

    device: str
    precision: str
    threads: int | None
    max_tokens_per_device: int | None


def choose_machine(
    recipe: Recipe, vocabulary_size: int, **options: Unpack[MachineOptions]
) -> Machine:
    """Return the machine that the flags ask for, and set up this process for it."""
    keep_freed_memory()
    threads = options.get("threads")
    if threads is not None:
        set_num_threads(threads)
    device = choose_device(options.get("device", "auto"))
    max_tokens = options.get("max_tokens_per_device")
    if max_tokens is None:
        max_tokens = default_max_tokens(
            recipe.model, vocabulary_size, device, recipe.training.tokens_per_step
        )
    precision = choose_precision(options.get("precision", "auto"), device)
    return Machine(device, precision, max_tokens)
