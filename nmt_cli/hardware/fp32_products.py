"""Which library multiplies fp32 matrices on a CPU: MKL, or oneDNN where that is faster.

torch uses MKL. It uses oneDNN for fp32 matrices only if oneDNN may round them to bf16, and oneDNN
rounds them only on a CPU with AMX. On a CPU without AMX the permission therefore selects another
kernel of the same precision. This module is the only place that gives the permission; it never does
so on a CPU with AMX, and it measures the error before a choice is used.

The permission belongs to the whole process, all its threads included.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt_cli import logs

Fp32Products = Literal["mkl", "onednn"]  # the names that checkpoints record

# By vendor and family of the CPU. MKL where nothing was measured.
FASTEST: dict[tuple[str, int], Fp32Products] = {
    # Zen 4: 110 GFLOP/s on a core, MKL 100; attention's products 1.5 to 1.9 times faster, but those
    # of a single query slower. Zen 3 is of this family too, and lacks AVX512.
    ("AuthenticAMD", 25): "onednn",
    ("AuthenticAMD", 26): "onednn",  # Zen 5: 212 GFLOP/s on a core, MKL 91
}
MEASURED_TORCH = {(2, 11), (2, 12), (2, 13)}
# Without them torch uses MKL whatever it is permitted.
ONEDNN_NEEDS = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"})
PERMISSIONS: dict[Fp32Products, str] = {"mkl": "ieee", "onednn": "bf16"}  # "ieee" is no rounding

# Largest relative error of an element in measure_error. Both libraries reach about 1e-6 there.
# Factors rounded to bf16 give 5e-3, to tf32 6e-5, and split into two bf16 numbers 7e-6.
MAX_ERROR = 4e-6
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


def fastest_fp32_products(cpu: Cpu, torch_version: str) -> Fp32Products:
    """Return what the table names for ``cpu``; the same for all shapes, so that ranks agree."""
    major, minor = torch_version.split(".")[:2]
    if (
        cpu.vendor is None
        or cpu.family is None
        or (int(major), int(minor)) not in MEASURED_TORCH
        or not cpu.flags >= ONEDNN_NEEDS
        or any(flag.startswith("amx") for flag in cpu.flags)
    ):
        return "mkl"
    return FASTEST.get((cpu.vendor, cpu.family), "mkl")


def choose_fp32_products(device: torch.device) -> Fp32Products:
    """Return the faster library for this machine.

    Logs a warning and returns "mkl" if the faster one does not compute in fp32. On a GPU the choice
    has no effect, and is "mkl".
    """
    if device.type != "cpu":
        return "mkl"
    fastest = fastest_fp32_products(read_cpu(), torch.__version__)
    if fastest == "mkl":
        return "mkl"
    try:
        if not _can_use_onednn():
            return "mkl"
        error = measure_error(fastest)
    except (AttributeError, RuntimeError) as failure:  # a build of torch without these settings
        problem = str(failure)
    else:
        if error <= MAX_ERROR:  # False for NaN
            return fastest
        problem = f"relative error {error:.0e}"
    logs.warning(f"oneDNN's fp32 products failed a check ({problem}); MKL computes them, slower.")
    return "mkl"


def _can_use_onednn() -> bool:
    """Return whether torch would use oneDNN if permitted, and oneDNN could not use AMX.

    A container may hide AMX in /proc/cpuinfo; torch asks the processor.
    """
    return (
        torch.backends.mkldnn.is_available()
        and bool(torch.backends.mkldnn.enabled)
        and torch.ops.mkldnn._is_mkldnn_bf16_supported()  # False if ONEDNN_MAX_CPU_ISA is low
        and not torch.cpu._is_amx_tile_supported()
    )


class _Block:
    """A block that is being executed; equal only to itself."""

    def __init__(self, permission: str) -> None:
        self.permission = permission


_lock = threading.Lock()
_blocks: list[_Block] = []
_before_blocks = ""  # the permission after the last block


def use_fp32_products(chosen: Fp32Products) -> None:
    """Multiply fp32 matrices with the ``chosen`` library in this process, except inside blocks."""
    global _before_blocks
    permission = _permission(chosen)
    with _lock:
        _before_blocks = permission
        if not _blocks:
            _permit(_before_blocks)


@contextmanager
def fp32_products(chosen: Fp32Products) -> Iterator[None]:
    """Multiply fp32 matrices with the ``chosen`` library in this process until the block ends.

    Blocks may be nested, and may overlap in several threads: the block entered last decides for all
    of them. After the last block torch has the setting that it had before the first.
    """
    global _before_blocks
    block = _Block(_permission(chosen))
    with _lock:
        if not _blocks:
            _before_blocks = _matmul().fp32_precision
        _permit(block.permission)
        _blocks.append(block)
    try:
        yield
    finally:
        with _lock:
            _blocks.remove(block)
            _permit(_blocks[-1].permission if _blocks else _before_blocks)


def _permission(chosen: Fp32Products) -> str:
    if chosen == "onednn" and torch.cpu._is_amx_tile_supported():
        raise ValueError(
            "oneDNN would round fp32 matrices to bf16 on this CPU, because it has AMX."
        )
    return PERMISSIONS[chosen]


def _matmul() -> Any:
    return torch.backends.mkldnn.matmul  # type: ignore[attr-defined]


def _permit(permission: str) -> None:
    _matmul().fp32_precision = permission


def measure_error(chosen: Fp32Products) -> float:
    """Return the largest relative error of some products by ``chosen``, against float64.

    They are of each kind that a model needs, forward and backward. Takes less than a tenth of a
    second, and draws nothing from torch's own generator.
    """
    generator = torch.Generator().manual_seed(1)

    def draw(*shape: int) -> Tensor:
        # bf16 rounds all of these down, by 0.1 to 0.38 %, so that the errors of a sum add up.
        rest = torch.rand(shape, generator=generator) * 0.0028 + 0.001
        return (1 + rest) * 2.0 ** torch.randint(-2, 3, shape, generator=generator)

    rows, weight, bias = draw(65, 256), draw(300, 256), draw(300)
    queries, keys, mask = draw(8, 20, 64), draw(8, 20, 64), draw(8, 20, 20)
    products: list[Callable[..., Tensor]] = [
        lambda x, w, b, *_: F.linear(x, w, b),
        lambda x, w, b, *_: F.linear(x[:1], w, b),  # one row
        lambda x, w, *_: torch.mm(torch.mm(x, w.t()), w),  # the second as in a gradient of rows
        lambda x, w, *_: torch.mm(x.t(), x),  # as in a gradient of weights
        lambda x, w, b, q, k, m: torch.bmm(q, k.transpose(1, 2)),
        lambda x, w, b, q, k, m: torch.bmm(m, k),
        lambda x, w, b, q, k, m: torch.baddbmm(m, q, k.transpose(1, 2), alpha=0.125),
    ]
    factors = [rows, weight, bias, queries, keys, mask]
    exact_factors = [factor.double() for factor in factors]
    with torch.no_grad(), torch.autocast("cpu", enabled=False), fp32_products(chosen):
        errors = [
            ((product(*factors) - exact) / exact).abs().max()
            for product in products
            for exact in [product(*exact_factors)]
        ]
    return float(torch.stack(errors).max())
