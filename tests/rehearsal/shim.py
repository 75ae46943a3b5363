"""Compiles the shim that lets torch compute with fake tensors on "cuda" where there is no GPU."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = Path(__file__).with_name("shim.cpp")
COMPILERS = ("g++", "clang++", "c++")


def found_compiler() -> str | None:
    """Return the C++ compiler of this machine; None if there is none."""
    return shutil.which(os.environ.get("CXX", "")) or next(
        filter(None, map(shutil.which, COMPILERS)), None
    )


def built_shim(compiler: str) -> str:
    """Return the path of the shim for this torch; it is compiled once, which takes seconds.

    Raises CalledProcessError, with the compiler's messages, if that fails.
    """
    command = _command(compiler)
    digest = hashlib.sha256(SOURCE.read_bytes())
    digest.update("\0".join([torch.__version__, *command]).encode())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "nmt-cli-tests")
    built = cache / f"shim-{digest.hexdigest()[:16]}.so"
    if built.exists():
        return str(built)
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        fresh = Path(folder, "shim.so")
        subprocess.run([*command, "-o", fresh], check=True, capture_output=True, text=True)
        fresh.replace(built)  # several workers of pytest may do this at the same time
    return str(built)


def _command(compiler: str) -> list[str]:
    from torch.utils import cpp_extension  # imports setuptools

    libraries = cpp_extension.TORCH_LIB_PATH
    return [
        *(compiler, "-O0", "-shared", "-fPIC", "-std=c++20", str(SOURCE)),
        *(f"-I{folder}" for folder in cpp_extension.include_paths()),
        *(f"-L{libraries}", f"-Wl,-rpath,{libraries}"),
        *("-ltorch", "-ltorch_cpu", "-lc10"),
    ]
