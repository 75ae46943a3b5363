"""Temporary names beside a file or directory, and the removal of leftovers of killed processes.

    .WHY-NAME-HOST-BOOT-RANDOM

Hosts and containers that share a volume may have equal process ids, so a random part makes each
name unique. HOST and BOOT identify the machine that wrote the file. NAME is shortened if the whole
would be too long for a file name.
"""

import hashlib
import os
import platform
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
HIDDEN_BOOT = "0" * 8
HOST_LENGTH = 16
# A file name has at most 255 bytes.
LONGEST_NAME = 255 - len(".replaced-") - len("-") - HOST_LENGTH - 2 * len("-01234567")
# Leftovers of another host are removed only if nothing in them has changed for this long: on some
# file systems locks do not work between hosts, and preprocess may write nothing for hours.
UNTOUCHED_SECONDS = 86_400.0
ORIGIN = r"(?P<host>[A-Za-z0-9_]+)-(?P<boot>[0-9a-f]{8})-[0-9a-f]{8}"

Why = Literal["partial", "delete", "replaced"]
Names = str | re.Pattern[str]  # one name, or all that match and are not too long


def temporary_path(path: Path, why: Why) -> Path:
    """Return a name beside ``path`` that no other process uses."""
    origin = f"{_this_host()}-{_this_boot()}-{os.urandom(4).hex()}"
    return path.with_name(f".{why}-{shortened(path.name)}-{origin}")


def shortened(name: str) -> str:
    """Return ``name``, or its beginning and a hash if temporary names of it would be too long."""
    encoded = os.fsencode(name)
    if len(encoded) <= LONGEST_NAME:
        return name
    end = f"~{hashlib.sha256(encoded).hexdigest()[:16]}"
    return encoded[: LONGEST_NAME - len(end)].decode(errors="ignore") + end


def is_set_aside(path: Path) -> bool:
    """Return whether ``path`` is missing because a process is replacing it, or died doing so."""
    if path.exists():
        return False
    return any(True for _ in _found(path.parent, path.name, "replaced"))


def restore_names(parent: Path, names: Names) -> None:
    """Rename back the files and directories in ``parent`` that killed processes were replacing."""
    for path, match in _found(parent, names, "replaced"):
        name = path.with_name(names if isinstance(names, str) else match["name"])
        if not name.exists():
            path.rename(name)


def remove_leftovers(parent: Path, names: Names) -> None:
    """Remove the temporary files and directories that killed processes left in ``parent``.

    Only those whose final names match are removed. A file or directory that was being replaced
    gets its name back. The caller must hold the lock that every writer of these names holds.
    """
    restore_names(parent, names)
    for path, match in _found(parent, names, "partial|delete|replaced"):
        # A writer of this machine has ended, since we hold the lock.
        is_ours = match["host"] == _this_host() or match["boot"] == _this_boot() != HIDDEN_BOOT
        if is_ours or _is_untouched(path):
            remove(path)


def remove(path: Path) -> None:
    """Remove a file, a link (not its target) or a folder; ignore what cannot be removed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _found(parent: Path, names: Names, why: str) -> Iterator[tuple[Path, re.Match[str]]]:
    """Yield the temporary names in ``parent``, each with its parts."""
    if isinstance(names, str):
        names = re.compile(re.escape(shortened(names)))
    pattern = re.compile(rf"\.(?:{why})-(?P<name>{names.pattern})-{ORIGIN}")
    for path in sorted(parent.iterdir()) if parent.is_dir() else ():
        match = pattern.fullmatch(path.name)
        if match is not None:
            yield path, match


def _is_untouched(path: Path) -> bool:
    try:
        newest = max(part.lstat().st_mtime for part in (path, *path.rglob("*")))
    except OSError:  # a file vanished, so its writer is still at work
        return False
    return time.time() - newest > UNTOUCHED_SECONDS


def _this_host() -> str:
    return re.sub(r"[^A-Za-z0-9]", "_", platform.node())[:HOST_LENGTH] or "host"


def _this_boot() -> str:
    """Return the start of the kernel's boot id, which changes whenever the machine starts."""
    with suppress(OSError):
        return BOOT_ID.read_text()[:8]
    return HIDDEN_BOOT
