"""Files in which the kernel describes the machine, such as /proc/cpuinfo."""

from pathlib import Path

SYSTEM = Path("/")  # the root; tests give a folder with other files


def read_system_file(path: Path) -> str:
    """Return the text of the file; empty if this kernel does not have it."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
