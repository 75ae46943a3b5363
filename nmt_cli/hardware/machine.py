"""Where training runs; nothing of it changes what is computed, up to rounding."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sysconfig
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import torch

from nmt_cli import logs
from nmt_cli.errors import UserError
from nmt_cli.hardware.memory import default_max_tokens, keep_freed_memory
from nmt_cli.hardware.precision import choose_device, choose_precision, set_num_threads
from nmt_cli.hardware.ranks import ALONE, Ranks
from nmt_cli.launch import Worker
from nmt_cli.recipe.schema import Recipe

COMPILERS = {"cpu": ("CXX", ("g++", "clang++", "c++")), "cuda": ("CC", ("gcc", "clang", "cc"))}
CUBLAS_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"  # read at the first product
REPORTED_PACKAGES = ("nmt-cli", "torch", "numpy", "sentencepiece", "sacrebleu", "safetensors")


class Machine(NamedTuple):
    """Device, arithmetic, how a batch is cut, and who computes the pieces."""

    device: torch.device
    precision: str  # fp32 | bf16
    max_tokens: int  # of either side of a micro-batch
    ranks: Ranks = ALONE
    multiple_of: int = 1  # of micro-batches in a batch, so that every rank gets as many
    is_compiled: bool = False
    is_deterministic: bool = False  # on a GPU too
    is_limit_chosen: bool = False  # the user gave max_tokens, so training never changes it

    def describe(self) -> dict[str, Any]:
        """Return what a run's log should say of it."""
        return {
            "versions": {name: _version(name) for name in REPORTED_PACKAGES},
            "python": platform.python_version(),
            "machine": platform.platform(),
            "device": str(self.device),
            "cores": os.cpu_count(),
            **self.facts(),
        }

    def facts(self) -> dict[str, Any]:
        """Return what rounding and the draws of dropout depend on, for a checkpoint."""
        return {
            "precision": self.precision,
            "ranks": self.ranks.size,
            "threads": torch.get_num_threads(),
            "max_tokens_per_device": self.max_tokens,
            "micro_batches_multiple_of": self.multiple_of,
            "compiled": self.is_compiled,
            "deterministic": self.is_deterministic,
        }


class MachineOptions(TypedDict, total=False):
    """The flags that choose a machine; what is left out or None is chosen to fit it."""

    device: str
    precision: str
    threads: int | None
    max_tokens_per_device: int | None
    compile: bool
    deterministic: bool


def count_devices(devices: int | None, device: str) -> int:
    """Return how many processes ``--devices`` and ``--device`` mean: all GPUs, or one on a CPU."""
    chosen = choose_device(device)
    if chosen.type == "cpu":
        return devices or 1
    visible = 1 if chosen.index is not None else torch.cuda.device_count()
    if devices is not None and devices > visible:
        raise UserError(f"--devices {devices} asked for, {visible} are visible.")
    return devices or visible


def choose_rank_device(name: str, worker: Worker | None) -> torch.device:
    """Return the device called ``name``; workers of a node take a GPU each."""
    device = choose_device(name)
    if worker is None or device.type == "cpu":
        return device
    if device.index is not None and worker.local_size > 1:
        raise UserError(f"--device {name} is one GPU, but {worker.local_size} workers need one.")
    visible = torch.cuda.device_count()
    if worker.local_size > visible:
        raise UserError(f"--devices {worker.local_size} asked for, {visible} are visible.")
    device = torch.device("cuda", worker.local_rank if device.index is None else device.index)
    torch.cuda.set_device(device)
    return device


def choose_machine(
    recipe: Recipe,
    vocabulary_size: int,
    device: torch.device,
    worker: Worker | None,
    options: MachineOptions,
) -> Machine:
    """Return the machine that the flags ask for, of one rank, and set up this process for it."""
    is_compiled = options.get("compile", False)
    is_deterministic = options.get("deterministic", False)
    if is_compiled and (missing := missing_for_compiling(device)):
        raise UserError(f"--compile needs {missing}, or leave --compile out.")
    keep_freed_memory()
    if device.type == "cuda":
        # cuDNN's attention, preferred on new GPUs, plans for each shape, and ours all differ.
        torch.backends.cuda.enable_cudnn_sdp(False)
        if is_deterministic:
            _be_deterministic()
    local_size = worker.local_size if worker is not None else 1
    threads = options.get("threads")
    if threads is None and worker is not None and (local_size > 1 or worker.outcome is not None):
        threads = max(1, len(os.sched_getaffinity(0)) // local_size)  # torchrun says 1
    if threads is not None:
        set_num_threads(threads)
    max_tokens = options.get("max_tokens_per_device")
    is_limit_chosen = max_tokens is not None
    if max_tokens is None:
        max_tokens = default_max_tokens(
            recipe.model, vocabulary_size, device, recipe.training.tokens_per_step, local_size
        )
    precision = choose_precision(options.get("precision", "auto"), device)
    return Machine(
        device,
        precision,
        max_tokens,
        is_compiled=is_compiled,
        is_deterministic=is_deterministic,
        is_limit_chosen=is_limit_chosen,
    )


def _be_deterministic() -> None:
    """Let GPU kernels that sum in an order of chance be replaced, or refused."""
    os.environ.setdefault(CUBLAS_WORKSPACE, ":4096:8")  # cuBLAS shares it between streams otherwise
    # Nothing here reads what it has not written.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(True)


def cut_as_before(machine: Machine, facts: Mapping[str, Any], *, is_chosen: bool) -> Machine:
    """Return ``machine`` with the cut of batches of a checkpoint with these ``facts``.

    It is another one where the flags have chosen so, where this machine holds less, or where the
    ranks cannot share the pieces out evenly: then dropout draws otherwise, and is told.
    """
    max_tokens, multiple_of = machine.max_tokens, machine.ranks.size
    if not is_chosen:
        max_tokens = min(max_tokens, facts["max_tokens_per_device"])
    if facts.get("micro_batches_multiple_of", 1) % machine.ranks.size == 0:
        multiple_of = facts.get("micro_batches_multiple_of", 1)
    machine = machine._replace(max_tokens=max_tokens, multiple_of=multiple_of)
    now = machine.facts()
    before = {"compiled": False, "deterministic": False, **facts}  # older checkpoints do not say
    changes = [f"{k} (was {before[k]}, is {v})" for k, v in now.items() if before.get(k, v) != v]
    if changes:
        logs.info(
            f"The machine changed: {', '.join(changes)}. The sentences of each step stay the same; "
            "rounding and the draws of dropout may not."
        )
    return machine


def missing_for_compiling(device: torch.device) -> str:
    """Return what torch.compile would fail for at its first use, and how to get it; else ""."""
    if device.type == "cuda" and importlib.util.find_spec("triton") is None:
        return "the package triton on a GPU: pip install triton"
    variable, compilers = COMPILERS[device.type]
    if variable not in os.environ and not any(map(shutil.which, compilers)):
        return (
            f"a compiler, and neither {' nor '.join(compilers)} was found: install one (Debian: "
            f"apt install {compilers[0]}), name it in {variable}"
        )
    header = Path(sysconfig.get_path("include"), "Python.h")
    if not header.exists():
        return f"Python's headers, but {header} is missing: install python3-dev (Debian)"
    return ""


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"  # run from its source folder
