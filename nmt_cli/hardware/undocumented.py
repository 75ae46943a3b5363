"""What torch and the OpenMP library in it do without documenting it.

- torch names the features of a CPU (seen in 2.11 to 2.13). A version without these functions raises
  AttributeError where a command chooses its precision.
- torch multiplies fp32 matrices by oneDNN if oneDNN may round them to bf16, and oneDNN rounds them
  only on a CPU with AMX (seen in 2.11 to 2.13). With other versions MKL multiplies them.
- libgomp takes 100 spins before a thread sleeps if it has more threads than there are cores (seen
  in torch 2.13). With another library, threads spin as long as the variables say, also beside other
  programs.

Beside these, ``optimization.Adam`` leaves out wrappers of torch's class and sets its ``found_inf``.
"""

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nmt_cli.hardware.cpu import read_system_file

OPENMP_LIBRARIES = ("libgomp.so", "libiomp5.so", "libomp.so")
MAPS = Path("/proc/self/maps")


def cpu_has_amx() -> bool:
    """Return whether the processor has AMX; a container may hide it in /proc/cpuinfo."""
    import torch

    return bool(torch.cpu._is_amx_tile_supported())


def cpu_has_avx512_bf16() -> bool:
    """Return whether the processor multiplies bf16 in vectors."""
    import torch

    return bool(torch.cpu._is_avx512_bf16_supported())


def why_without_onednn() -> str | None:
    """Return why torch cannot or must not multiply fp32 matrices by oneDNN; None if it can."""
    import torch

    if cpu_has_amx():
        return "this CPU has AMX, where oneDNN would round to bf16"
    if not (torch.backends.mkldnn.is_available() and bool(torch.backends.mkldnn.enabled)):
        return "torch has no oneDNN, or it is disabled"
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():  # or if ONEDNN_MAX_CPU_ISA is low
        return "torch does not use oneDNN on a CPU without AVX512"
    return None


@contextmanager
def onednn_permitted() -> Iterator[None]:
    """Let oneDNN multiply fp32 matrices in this block, in all threads of the process.

    Without AMX, the permission to round them to bf16 only selects another kernel of the same
    precision. With AMX they would be rounded: ask ``why_without_onednn`` before.
    """
    import torch

    with fp32_precision(torch.backends.mkldnn.matmul, "bf16"):  # type: ignore[attr-defined]
        yield


@contextmanager
def fp32_precision(products: Any, precision: str) -> Iterator[None]:
    """Let fp32 ``products``, settings of torch, have a ``precision`` in this block."""
    before = products.fp32_precision
    products.fp32_precision = precision
    try:
        yield
    finally:
        products.fp32_precision = before


@contextmanager
def sleeping_at_once(library: ctypes.CDLL) -> Iterator[None]:
    """Let the waiting threads of this process sleep after 100 spins.

    A thread of this block keeps more OpenMP threads than there are cores. They sleep.
    """
    started, ended = threading.Event(), threading.Event()

    def keep_team() -> None:
        nothing = ctypes.cast(ctypes.CDLL(None).free, ctypes.c_void_p)  # of a null pointer
        num_threads = ctypes.c_uint(len(os.sched_getaffinity(0)) + 1)
        library.GOMP_parallel(nothing, None, num_threads, ctypes.c_uint(0))
        started.set()
        ended.wait()  # the team ends with this thread

    keeper = threading.Thread(target=keep_team, name="team", daemon=True)
    keeper.start()
    started.wait()
    try:
        yield
    finally:
        ended.set()
        keeper.join()


def openmp_libraries(maps: Path = MAPS) -> dict[str, str]:
    """Return {name: path} of the OpenMP libraries that this process has loaded.

    Copies of other packages are not among them; their names have a hash: libgomp-6a29c32d.so.1.0.0.
    If libiomp5 or libomp is loaded beside libgomp, it was preloaded, and torch uses it.
    """
    paths = {line.split(maxsplit=5)[-1] for line in read_system_file(maps).splitlines()}
    return {
        name.removesuffix(".so"): path
        for name in OPENMP_LIBRARIES
        for path in paths
        if f"/{name}" in path
    }


def gnu_openmp(maps: Path = MAPS) -> ctypes.CDLL | None:
    """Return the library with which torch computes; None if it is not GNU's."""
    libraries = openmp_libraries(maps)
    return ctypes.CDLL(libraries["libgomp"]) if set(libraries) == {"libgomp"} else None
