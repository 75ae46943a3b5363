"""The kind of CPU that this program runs on."""

from pathlib import Path
from typing import NamedTuple

from nmt_cli.hardware.system_files import SYSTEM, read_system_file

CPUINFO = SYSTEM / "proc/cpuinfo"


class Cpu(NamedTuple):
    """What /proc/cpuinfo shows of the first core; other architectures than x86 show no vendor."""

    vendor: str | None
    family: int | None
    flags: frozenset[str]


def read_cpu(cpuinfo: Path = CPUINFO) -> Cpu:
    """Return the CPU that ``cpuinfo`` describes."""
    first_core = read_system_file(cpuinfo).strip().partition("\n\n")[0]
    lines = (line.partition(":") for line in first_core.splitlines())
    values = {name.strip(): value.strip() for name, _, value in lines}
    family = values.get("cpu family", "")
    return Cpu(
        values.get("vendor_id"),
        int(family) if family.isdecimal() else None,
        frozenset(values.get("flags", "").split()),
    )
