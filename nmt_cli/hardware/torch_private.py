"""What torch does without documenting it, and what happens with a version that does not.

- torch names the features of a CPU (2.11 to 2.14). Without these functions, /proc/cpuinfo is read,
  whose flags a container may hide; then ``--precision auto`` is fp32.
- torch multiplies fp32 matrices by oneDNN if oneDNN may round them to bf16, and oneDNN rounds them
  only on a CPU with AMX (2.11 to 2.14). Without these settings, or if oneDNN does round, MKL
  multiplies them: ``fp32_products`` measures the error before it uses oneDNN.

Beside these, ``optimization.Adam`` leaves out wrappers of torch's class and sets its ``found_inf``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from nmt_cli.hardware.cpu import read_cpu


def cpu_has_amx() -> bool:
    """Return whether the processor has AMX; a container may hide it in /proc/cpuinfo."""
    return _has_feature("_is_amx_tile_supported", "amx_tile")


def cpu_has_avx512_bf16() -> bool:
    """Return whether the processor multiplies bf16 in vectors."""
    return _has_feature("_is_avx512_bf16_supported", "avx512_bf16")


def _has_feature(function: str, flag: str) -> bool:
    is_supported = getattr(torch.cpu, function, None)
    return flag in read_cpu().flags if is_supported is None else bool(is_supported())


def onednn_computes_fp32() -> bool:
    """Return whether torch has oneDNN, may use it here, and would not round fp32 products."""
    return (
        not cpu_has_amx()
        and torch.backends.mkldnn.is_available()
        and bool(torch.backends.mkldnn.enabled)
        # It is not without AVX-512, or if ONEDNN_MAX_CPU_ISA is low; MKL computes then.
        and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    )


@contextmanager
def onednn_permitted() -> Iterator[None]:
    """Let oneDNN multiply fp32 matrices in this block, in all threads of the process.

    Without AMX, the permission to round them to bf16 only selects another kernel of the same
    precision. With AMX they would be rounded: ask ``onednn_computes_fp32`` before.
    """
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
