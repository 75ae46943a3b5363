"""Facts of the system that need no torch: versions, cores, memory, disks, GPUs."""

import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nmt_cli import __version__
from nmt_cli.hardware.cpu import SYSTEM, cores, memory_limit, read_system_file
from nmt_cli.messages.figures import GIBIBYTE

PACKAGES = (
    "numpy", "click", "pyyaml", "pydantic", "sentencepiece", "sacrebleu", "sacremoses",
    "safetensors", "tqdm", "matplotlib", "nltk", "requests", "tensorboard",
)  # fmt: skip
VARIABLES = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME",
    "CUDA_VISIBLE_DEVICES",
)  # fmt: skip
NVIDIA, GRAPHICS = "0x10de", "0x03"  # the PCI vendor, and the start of the PCI class of GPUs


def system_facts(system: Path = SYSTEM) -> dict[str, Any]:
    """Return facts by dotted name, None if unknown; ``system`` is the folder of proc and sys."""
    allowed = cores(system)
    return {
        "nmt-cli": version_of("nmt-cli"),
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "python.debug_build": hasattr(sys, "gettotalrefcount"),
        "platform": platform.platform(),
        **{f"packages.{name}": version_of(name) for name in PACKAGES},
        **{f"environment.{name}": os.environ.get(name) for name in VARIABLES},
        "cpu.name": cpu_name(system),
        "cpu.cores": os.cpu_count(),
        "cpu.cores_allowed": allowed.allowed,
        "cpu.quota_cores": allowed.quota,
        "memory.total_gib": _gibibytes("MemTotal", system),
        "memory.available_gib": _gibibytes("MemAvailable", system),
        "memory.huge_pages": _found(
            r"\[(\w+)\]", system / "sys/kernel/mm/transparent_hugepage/enabled"
        ),
        **dict(_free_space(system)),
        "gpu.on_bus": _gpus_on_bus(system),
        "gpu.driver": _found(r"Kernel Module\D*([\d.]+)", system / "proc/driver/nvidia/version"),
    }


def cpu_name(system: Path = SYSTEM) -> str | None:
    """Return the name of the CPU; None if it is unknown."""
    return _found(r"model name\s*: (.*)", system / "proc/cpuinfo")


def version_of(package: str) -> str | None:
    """Return the version of an installed package; None if it is not installed.

    That of nmt-cli is that of this code: where its checkout was updated, the installation names an
    older one.
    """
    if package == "nmt-cli":
        return __version__
    from importlib import metadata  # takes as long as a third of numpy

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _found(pattern: str, path: Path) -> str | None:
    match = re.search(pattern, read_system_file(path))
    return match.group(1) if match else None


def _gibibytes(name: str, system: Path) -> float | None:
    found = _found(rf"{name}:\s*(\d+) kB", system / "proc/meminfo")
    return round(int(found) * 1024 / GIBIBYTE, 1) if found else None


def _free_space(system: Path) -> Iterator[tuple[str, float | None]]:
    try:
        temporary = Path(tempfile.gettempdir())
    except FileNotFoundError:  # Python found no folder that it can write to
        temporary = Path("/nonexistent")
    places = {"here": Path(), "temporary": temporary, "shared_memory": system / "dev/shm"}
    for name, path in places.items():
        try:
            free: float | None = round(shutil.disk_usage(path).free / GIBIBYTE, 2)
        except OSError:
            free = None
        yield f"disk.{name}_gib", free


def free_memory(system: Path = SYSTEM) -> int:
    """Return the bytes that programs can still take; 0 if the kernel does not show them."""
    found = _found(r"MemAvailable:\s*(\d+) kB", system / "proc/meminfo")
    available = int(found) * 1024 if found else 0
    return min(available, memory_limit(system) or available)


def _gpus_on_bus(system: Path) -> int:
    """Return the number of NVIDIA GPUs, also of those without a driver."""
    gpus = 0
    for device in (system / "sys/bus/pci/devices").glob("*"):
        is_nvidia = read_system_file(device / "vendor").strip() == NVIDIA
        gpus += is_nvidia and read_system_file(device / "class").startswith(GRAPHICS)
    return gpus
