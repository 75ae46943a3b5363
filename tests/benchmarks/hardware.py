"""The machine, from the name and flags of its CPU or GPU; records are named after it."""

import os
import platform
import re
from pathlib import Path
from typing import NamedTuple

import torch

MATRIX_FLAGS = ("amx_bf16", "avx512_bf16")  # the best first
NO_FLAG = "no bf16"


class Hardware(NamedTuple):
    """One machine."""

    cpu: str
    flag: str  # the first of MATRIX_FLAGS that the CPU has, else NO_FLAG
    cores: int
    memory: int  # bytes
    gpu: str | None

    @property
    def slug(self) -> str:
        """Return a name for files."""
        words = f"{self.gpu or self.cpu} {self.flag if not self.gpu else ''} {self.cores} cores"
        plain = re.sub(r"\((R|TM|C)\)|@.*GHz|\bCPU\b|\bProcessor\b", " ", words)
        return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")

    @property
    def has_fast_bf16(self) -> bool:
        """Whether bf16 is worth measuring."""
        return self.gpu is not None or self.flag != NO_FLAG


def this_machine() -> Hardware:
    """Return the machine that this runs on."""
    cpu, flags = describe_cpu(Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    return Hardware(
        cpu=cpu or platform.processor() or platform.machine(),
        flag=next((flag for flag in MATRIX_FLAGS if flag in flags), NO_FLAG),
        cores=len(os.sched_getaffinity(0)),
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        gpu=torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    )


def describe_cpu(cpuinfo: str) -> tuple[str, frozenset[str]]:
    """Return the model's name and the flags of the first CPU; empty if Linux lists none."""
    name = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    flags = re.search(r"^flags\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return name[1].strip() if name else "", frozenset(flags[1].split() if flags else ())
