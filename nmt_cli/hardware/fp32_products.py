"""Which library multiplies fp32 matrices on a CPU: MKL, or oneDNN where that is faster.

torch uses MKL unless ``undocumented.onednn_permitted`` permits oneDNN. The error is measured before
that choice is used.
"""

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt_cli.hardware.choices import AUTO
from nmt_cli.hardware.cpu import Cpu, read_cpu
from nmt_cli.hardware.undocumented import onednn_permitted, why_without_onednn
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError, WrongUsageError

Fp32Products = Literal["mkl", "onednn"]  # the names that checkpoints record

# The vendor and family of CPUs on which oneDNN is faster: Zen 4, and Zen 5 (212 GFLOP/s on a core,
# MKL 91). Measured in training, after its first minute, in which oneDNN compiles a product for each
# number of rows that it meets. On Zen 3, which is of family 25 as well, torch has only MKL.
FASTER_BY_ONEDNN = {("AuthenticAMD", 25), ("AuthenticAMD", 26)}
MEASURED_TORCH = ("2.11.", "2.12.", "2.13.")

# Largest relative error of an element in measure_error. Both libraries reach about 1e-6 there.
# Factors rounded to bf16 give 5e-3, to tf32 6e-5, and split into two bf16 numbers 7e-6.
MAX_ERROR = 4e-6
RATE_ROWS, RATE_SECONDS = 512, 0.2


def is_onednn_faster(cpu: Cpu, torch_version: str) -> bool:
    """Return whether the table names ``cpu``; the same for all shapes, so that ranks agree."""
    return (cpu.vendor, cpu.family) in FASTER_BY_ONEDNN and torch_version.startswith(MEASURED_TORCH)


def choose_fp32_products(name: str, device: torch.device, precision: str) -> Fp32Products:
    """Return the library that ``name`` means on ``device``; "auto" is the faster one.

    On a GPU and in bf16 there are no fp32 products, and the result is "mkl". If the faster library
    does not compute in fp32 here, a warning is logged and the result is "mkl". Raises UserError if
    ``name`` is "onednn" and oneDNN cannot be used.
    """
    if name not in {AUTO, *get_args(Fp32Products)}:
        raise WrongUsageError(f"--fp32-products must be auto, mkl or onednn, but is {name}.")
    if device.type != "cpu" or precision == "bf16" or name == "mkl":
        return "mkl"
    if name == AUTO and not is_onednn_faster(read_cpu(), torch.__version__):
        return "mkl"
    problem = why_without_onednn()
    if problem is None and (problem := _why_inaccurate()) and name == AUTO:
        logs.warning(f"oneDNN's fp32 products failed a check ({problem}), so MKL computes them.")
    if problem and name == "onednn":
        raise UserError(f"--fp32-products onednn cannot be used: {problem}; leave the option out.")
    return "mkl" if problem else "onednn"


def _why_inaccurate() -> str | None:
    """Return what is wrong with oneDNN's products here; None if they are fp32."""
    try:
        error = measure_error("onednn")
    except (AttributeError, RuntimeError) as failure:  # a build of torch without these settings
        return str(failure)
    return None if error <= MAX_ERROR else f"relative error {error:.0e}"  # also for NaN


def use_fp32_products(chosen: Fp32Products) -> AbstractContextManager[None]:
    """Multiply fp32 matrices with the ``chosen`` library in this process until the block ends.

    "mkl" leaves torch's setting as it is. Blocks must not overlap in several threads, because the
    setting is that of the whole process.
    """
    return onednn_permitted() if chosen == "onednn" else nullcontext()


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
    with torch.no_grad(), torch.autocast("cpu", enabled=False), use_fp32_products(chosen):
        errors = [
            ((product(*factors) - exact) / exact).abs().max()
            for product in products
            for exact in [product(*exact_factors)]
        ]
    return float(torch.stack(errors).max())


def fp32_gigaflops(chosen: Fp32Products) -> float:
    """Return the rate of a feed-forward product by ``chosen``, the best of RATE_SECONDS seconds."""
    x, weight = torch.randn(RATE_ROWS, 512), torch.randn(2048, 512)
    result, fastest = x.new_empty(RATE_ROWS, 2048), math.inf
    with torch.no_grad(), use_fp32_products(chosen):
        end = time.monotonic() + RATE_SECONDS
        while time.monotonic() < end:
            started = time.perf_counter()
            torch.mm(x, weight.mT, out=result)
            fastest = min(fastest, time.perf_counter() - started)
    return 2 * x.numel() * len(weight) / fastest / 1e9
