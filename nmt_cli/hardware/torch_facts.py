"""What this build of torch is, and the devices it sees; for bug reports."""

import re
import warnings
from typing import Any

import torch

from nmt_cli.hardware.device import bf16_is_fast, choose_precision
from nmt_cli.hardware.flops import TERA, peak_flops
from nmt_cli.hardware.fp32_products import choose_fp32_products
from nmt_cli.hardware.machine_options import AUTO
from nmt_cli.hardware.memory import allowed_memory
from nmt_cli.hardware.torch_private import cpu_has_amx, cpu_has_avx512_bf16
from nmt_cli.messages.figures import GIBIBYTE


def torch_facts() -> dict[str, Any]:
    """Return facts by dotted name; ``torch.gpu_problem`` is the warning of the GPU driver."""
    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    facts = {
        "torch.version": torch.__version__,
        "torch.debug_build": bool(torch.version.debug),
        "torch.cuda": torch.version.cuda,
        "torch.hip": torch.version.hip,
        "torch.onednn": _build_version("MKL-DNN|oneDNN"),
        "torch.mkl": _build_version("Math Kernel Library Version"),
        "torch.threads": torch.get_num_threads(),
        "torch.cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "torch.gpus": count,
        "torch.gpu_problem": " ".join(str(complaints[0].message).split()) if complaints else None,
        "memory.allowed_gib": round(allowed_memory() / GIBIBYTE, 1),
        "device.cpu.amx": cpu_has_amx(),
        "device.cpu.avx512_bf16": cpu_has_avx512_bf16(),
        **_of_device(torch.device("cpu"), "device.cpu"),
        "device.cpu.fp32_products": choose_fp32_products(torch.device("cpu"), "fp32"),
    }
    for index in range(count):
        facts |= _of_gpu(torch.device("cuda", index), f"device.cuda.{index}")
    return facts


def _build_version(name: str) -> str | None:
    """Return the version behind ``name`` in torch's description of its build."""
    found = re.search(rf"(?:{name}) v?([\d.]*\d)", torch.__config__.show())
    return found.group(1) if found else None


def _of_device(device: torch.device, prefix: str) -> dict[str, Any]:
    peak = peak_flops(device, "bf16")
    return {
        f"{prefix}.bf16_is_fast": bf16_is_fast(device),
        f"{prefix}.precision": choose_precision(AUTO, device),
        f"{prefix}.peak_bf16_teraflops": None if peak is None else peak / TERA,
    }


def _of_gpu(device: torch.device, prefix: str) -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(device)
    capability = (properties.major, properties.minor)
    try:
        free: float | None = round(torch.cuda.mem_get_info(device)[0] / GIBIBYTE, 1)
    except RuntimeError:  # such as a GPU that another program holds exclusively
        free = None
    return {
        f"{prefix}.name": properties.name,
        f"{prefix}.capability": f"{capability[0]}.{capability[1]}",
        f"{prefix}.is_built_for": is_built_for(capability, torch.cuda.get_arch_list()),
        f"{prefix}.memory_gib": round(properties.total_memory / GIBIBYTE, 1),
        f"{prefix}.free_gib": free,
        **_of_device(device, prefix),
    }


def is_built_for(capability: tuple[int, int], architectures: list[str]) -> bool:
    """Return whether a build of torch for these architectures runs on a GPU of this capability.

    Machine code (sm_80) runs on GPUs of the same major version, PTX (compute_80) on all later ones.
    """
    for architecture in architectures:
        kind, _, digits = architecture.partition("_")
        number = re.match(r"\d+", digits)
        if number is None:
            continue
        built = divmod(int(number.group()), 10)
        is_compiled = kind == "sm" and built[0] == capability[0] and built[1] <= capability[1]
        if is_compiled or (kind == "compute" and built <= capability):
            return True
    return False
