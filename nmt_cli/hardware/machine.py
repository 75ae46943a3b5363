"""The device and the arithmetic of a training; they change its results only by rounding."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from nmt_cli.hardware.cpu import set_num_threads, threads_of_each, threads_of_variables
from nmt_cli.hardware.device import (
    Precision,
    choose_device,
    choose_precision,
    prefer_flash_attention,
)
from nmt_cli.hardware.fp32_products import Fp32Products, choose_fp32_products
from nmt_cli.hardware.machine_options import Kernels, MachineOptions
from nmt_cli.hardware.memory import keep_freed_memory
from nmt_cli.hardware.ranks import ALONE, Ranks
from nmt_cli.hardware.system_facts import version_of
from nmt_cli.launch.worker import Worker
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError

REPORTED_PACKAGES = ("nmt-cli", "torch", "numpy", "sentencepiece", "sacrebleu", "safetensors")


class Machine(NamedTuple):
    """The device of one rank, its arithmetic, and the ranks that train together."""

    device: torch.device
    precision: str  # fp32 | bf16
    ranks: Ranks = ALONE
    kernels: Kernels | None = None  # of gradients on a GPU, if the user chose them
    has_graphs: bool = True  # CUDA graphs may be used
    is_deterministic: bool = False  # on a GPU too
    fp32_products: Fp32Products = "mkl"
    exchange: Precision = "fp32"  # of gradients between ranks

    def describe(self) -> dict[str, Any]:
        """Return the versions and the hardware, for the log of a run."""
        return {
            "versions": {name: version_of(name) or "not installed" for name in REPORTED_PACKAGES},
            "python": platform.python_version(),
            "machine": platform.platform(),
            "device": str(self.device),
            "cores": os.cpu_count(),
            **self.arithmetic(),
        }

    def arithmetic(self) -> dict[str, Any]:
        """Return what rounding depends on, for a checkpoint."""
        return {
            "precision": self.precision,
            "ranks": self.ranks.size,
            "threads": torch.get_num_threads(),
            "deterministic": self.is_deterministic,
            "fp32_products": self.fp32_products,
            "exchange": self.exchange,
        }


def count_devices(devices: int | None, device: str) -> int:
    """Return the number of processes: ``devices``, or by default one for each GPU, or one on a CPU.

    Raises UserError if fewer GPUs are visible.
    """
    chosen = choose_device(device)
    if chosen.type == "cpu":
        return devices or 1
    visible = 1 if chosen.index is not None else torch.cuda.device_count()
    if devices is not None and devices > visible:
        raise UserError(f"--devices {devices} asked for, {visible} are visible.")
    return devices or visible


def choose_rank_device(name: str, worker: Worker | None) -> torch.device:
    """Return the device called ``name``; each worker of a node gets a GPU of its own.

    srun may show each of its tasks another one (--gpus-per-task=1). The GPU is the current one from
    then on. Raises UserError if there are not enough.
    """
    keep_freed_memory()
    device = choose_device(name)
    if worker is None and device.index is not None:
        torch.cuda.set_device(device)  # Triton launches on the current one
    if worker is None or device.type == "cpu":
        return device
    visible = torch.cuda.device_count()
    sees_own = worker.is_of_srun and visible == 1
    number, sharing = (0, 1) if sees_own else (worker.local_rank, worker.local_size)
    if device.index is not None and sharing > 1:
        raise UserError(f"--device {name} is one GPU, but {sharing} workers need one.")
    if sharing > visible and worker.is_of_srun:
        raise UserError(
            f"srun has started {sharing} tasks on this node, but they see {visible} GPUs; give it "
            f"--gpus-per-node={sharing} or --gpus-per-task=1."
        )
    if sharing > visible:
        raise UserError(f"--devices {sharing} asked for, {visible} are visible.")
    device = torch.device("cuda", number if device.index is None else device.index)
    torch.cuda.set_device(device)
    return device


def _threads_of(worker: Worker) -> int | None:
    """Return how many threads a worker uses; None stands for the usual number.

    torchrun sets the variable of threads to 1, and so does enroot for tasks of srun. Another number
    that a task of srun has was chosen by the user.
    """
    if worker.is_of_srun and threads_of_variables() not in {None, 1}:
        return None
    if worker.local_size == 1 and worker.outcome is None:
        return None
    return threads_of_each(worker.local_size, worker.cores)


def choose_machine(device: torch.device, worker: Worker | None, options: MachineOptions) -> Machine:
    """Return the machine of one rank that the flags ask for, and set up this process for it.

    The ranks need not be connected yet. Raises UserError if a flag has no such value, or asks for
    what this machine cannot do.
    """
    if options.deterministic and options.kernels == "ours":
        raise UserError("--deterministic takes torch's kernels; leave it or --kernels ours out.")
    prefer_flash_attention(device)
    if device.type == "cuda" and options.deterministic:
        # GPU kernels whose order of summation varies between runs are replaced, or refused. Without
        # the variable, cuBLAS shares its workspace between streams.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read at the first product
        # Nothing here reads what it has not written.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        torch.use_deterministic_algorithms(True)
    threads = options.threads
    if threads is None and worker is not None:
        threads = _threads_of(worker)
    set_num_threads(threads)
    precision = choose_precision(options.precision, device)
    return Machine(
        device,
        precision,
        Ranks(worker.rank, worker.size) if worker is not None else ALONE,
        kernels=options.kernels,
        has_graphs=not options.no_cuda_graphs,
        is_deterministic=options.deterministic,
        fp32_products=choose_fp32_products(device, precision),
        exchange=options.exchange,
    )


def agree_on_products(machine: Machine, before: Mapping[str, Any] | None) -> Machine:
    """Return ``machine`` with the fp32 products of all ranks: oneDNN's if all of them chose it.

    A training that resumes from a checkpoint with the manifest ``before`` keeps its MKL.
    """
    choices = machine.ranks.gather(machine.fp32_products)
    if before is not None:
        choices.append(before["fp32_products"])
    agreed: Fp32Products = "mkl" if "mkl" in choices else "onednn"
    return machine._replace(fp32_products=agreed)


def log_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Log which values of the machine ``now`` differ from those of a checkpoint, ``before``."""
    changes = [f"{k} (was {before[k]}, is {v})" for k, v in now.items() if before.get(k, v) != v]
    if changes:
        logs.info(
            f"The machine changed: {', '.join(changes)}. The sentences of each step stay the same; "
            "rounding and the draws of dropout may not."
        )
