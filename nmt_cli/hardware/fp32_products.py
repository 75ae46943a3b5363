"""Which library multiplies fp32 matrices on a CPU: MKL, or oneDNN where that is faster.

docs/how-to/on-a-cpu.md explains the choice.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt_cli.hardware.cpu import read_cpu
from nmt_cli.hardware.torch_private import onednn_computes_fp32, onednn_permitted
from nmt_cli.messages import logs

Fp32Products = Literal["mkl", "onednn"]  # the names that checkpoints record

# The vendor and family of CPUs on which oneDNN is faster: Zen 4, and Zen 5 (212 GFLOP/s on a core,
# MKL 91). Measured in training, after its first minute, in which oneDNN compiles a product for each
# number of rows that it meets. On Zen 3, which is of family 25 as well, torch has only MKL.
FASTER_BY_ONEDNN = frozenset({("AuthenticAMD", 25), ("AuthenticAMD", 26)})

# Largest relative error of an element in measure_error. Both libraries reach about 1e-6 there.
# Factors rounded to bf16 give 5e-3, to tf32 6e-5, and split into two bf16 numbers 7e-6.
MAX_ERROR = 4e-6


def choose_fp32_products(device: torch.device, precision: str) -> Fp32Products:
    """Return the library that multiplies fp32 matrices on ``device`` in ``precision``.

    It is "onednn" on a CPU of the table above if oneDNN computes in fp32 there, which is measured;
    else "mkl", also where there are no fp32 products. Logs a warning if only the measured error
    forbids oneDNN.
    """
    cpu = read_cpu()
    has_products = device.type == "cpu" and precision == "fp32"
    if not has_products or (cpu.vendor, cpu.family) not in FASTER_BY_ONEDNN:
        return "mkl"
    try:
        if not onednn_computes_fp32():
            return "mkl"
        error = measure_error("onednn")
        problem = None if error <= MAX_ERROR else f"relative error {error:.0e}"  # also for NaN
    except (AttributeError, RuntimeError) as failure:  # a build of torch without these settings
        problem = str(failure)
    if problem is not None:
        logs.warning(f"oneDNN's fp32 products failed a check ({problem}), so MKL computes them.")
        return "mkl"
    return "onednn"


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
