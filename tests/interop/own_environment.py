"""Installs another program from PyPI into a virtual environment of its own."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")


def python_with(folder: Path, program: str, *others: str) -> Path:
    """Return the Python of an environment with ``program``, without what that asks for.

    It has ``others`` with what they ask for, and all packages of this environment, such as torch.
    The test is skipped if one cannot be installed.
    """
    venv.create(folder, with_pip=True)
    python = folder / "bin/python"
    (packages,) = sorted(folder.glob("lib/python*/site-packages"))
    ours = [each for each in sys.path if each.endswith("site-packages")]
    (packages / "ours.pth").write_text("".join(f"{each}\n" for each in ours))
    for arguments in (("--no-deps", program), others):
        done = subprocess.run([python, *PIP, *arguments], capture_output=True, text=True)
        if done.returncode:
            error = done.stderr.strip().splitlines()[-1:]
            pytest.skip(f"{' '.join(arguments)} cannot be installed: {' '.join(error)}")
    return python


def run_script(python: Path, script: Path, *arguments: str | Path) -> None:
    """Run a script of this folder."""
    done = subprocess.run([python, script, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
