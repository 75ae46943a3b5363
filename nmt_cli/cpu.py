"""The kind of CPU that this program runs on."""

from pathlib import Path
from typing import NamedTuple

CPUINFO = Path("/proc/cpuinfo")


class Cpu(NamedTuple):
    """What /proc/cpuinfo shows of the first core; other architectures than x86 show no vendor."""

    vendor: str | None
    family: int | None
    flags: frozenset[str]


def read_cpu(cpuinfo: Path = CPUINFO) -> Cpu:
    """Return the CPU that ``cpuinfo`` describes."""
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    lines = (line.partition(":") for line in text.strip().partition("\n\n")[0].splitlines())
    values = {name.strip(): value.strip() for name, _, value in lines}
    family = values.get("cpu family", "")
    return Cpu(
        values.get("vendor_id"),
        int(family) if family.isdecimal() else None,
        frozenset(values.get("flags", "").split()),
    )
