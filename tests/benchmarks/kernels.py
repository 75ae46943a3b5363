"""The rate of single matrix products by each library, on one thread.

python -m tests.benchmarks.kernels prints one line of JSON: {shape: {kernel: GFLOP/s}}.
"""

import json
import math
import time
from collections.abc import Callable, Iterator
from statistics import median

import torch
from torch import Tensor
from torch.nn import functional as F

from nmt_cli.hardware.device import bf16_is_fast, choose_device
from nmt_cli.hardware.fp32_products import Fp32Products, measure_error, use_fp32_products
from nmt_cli.hardware.torch_private import onednn_computes_fp32

# rows x in x out, as in feed-forward layers and the softmax of S and base
LINEAR = ((64, 256, 1024), (256, 256, 1024), (512, 256, 8000), (512, 512, 2048), (2048, 512, 2048))
# batch x rows x in x out, as in attention: training, and one step of a beam of 4
BATCHED = ((512, 30, 64, 30), (512, 4, 64, 60))
SAMPLES, SECONDS_OF_A_SAMPLE = 7, 0.05


def main() -> None:
    """Measure every shape and print the rates and errors."""
    torch.set_num_threads(1)
    libraries = list(_libraries())
    rates: dict[str, dict[str, float]] = {}
    with torch.no_grad():
        for shape in (*LINEAR, *BATCHED):
            flops = 2 * math.prod(shape)
            kernels = _linear(shape, libraries) if len(shape) == 3 else _batched(shape, libraries)
            rates[" x ".join(map(str, shape))] = {
                name: flops / _seconds(multiply) / 1e9 for name, multiply in kernels
            }
    errors = {library: measure_error(library) for library in libraries}
    print(json.dumps({"rates": rates, "errors": errors}))  # noqa: T201 - read by the parent


def _libraries() -> Iterator[Fp32Products]:
    """Yield the libraries that compute fp32 products in fp32 on this CPU."""
    yield "mkl"
    if onednn_computes_fp32():
        yield "onednn"


def _linear(
    shape: tuple[int, ...], libraries: list[Fp32Products]
) -> Iterator[tuple[str, Callable[[], Tensor]]]:
    rows, width, out = shape
    x, weight = torch.randn(rows, width), torch.randn(out, width)
    for library in libraries:
        yield f"{library} fp32", _by(library, lambda: F.linear(x, weight))
    if "onednn" in libraries:
        pointwise = torch.ops.mkldnn._linear_pointwise
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
        yield "onednn fp32, packed", lambda: pointwise(x, packed, None, "none", [], "")
        yield "onednn fp32, packed, ReLU", lambda: pointwise(x, packed, None, "relu", [], "")
    if bf16_is_fast(choose_device("cpu")):
        x_bf16, weight_bf16 = x.bfloat16(), weight.bfloat16()
        yield "bf16", lambda: F.linear(x_bf16, weight_bf16)
    x_int8, weight_int8 = (torch.randint(-99, 99, t.shape, dtype=torch.int8) for t in (x, weight))
    yield "int8", lambda: torch._int_mm(x_int8, weight_int8.T)


def _batched(
    shape: tuple[int, ...], libraries: list[Fp32Products]
) -> Iterator[tuple[str, Callable[[], Tensor]]]:
    batch, rows, width, out = shape
    queries, keys = torch.randn(batch, rows, width), torch.randn(batch, out, width)
    for library in libraries:
        yield f"{library} fp32", _by(library, lambda: torch.bmm(queries, keys.mT))


def _by(library: Fp32Products, multiply: Callable[[], Tensor]) -> Callable[[], Tensor]:
    def run() -> Tensor:
        with use_fp32_products(library):
            return multiply()

    return run


def _seconds(multiply: Callable[[], Tensor]) -> float:
    """Return the median time of a call, over samples of many calls."""
    multiply()
    started = time.perf_counter()
    multiply()
    calls = max(1, int(SECONDS_OF_A_SAMPLE / (time.perf_counter() - started)))
    samples = []
    for _ in range(SAMPLES):
        started = time.perf_counter()
        for _ in range(calls):
            multiply()
        samples.append((time.perf_counter() - started) / calls)
    return median(samples)


if __name__ == "__main__":
    main()
