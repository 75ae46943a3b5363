"""The kernels can be compiled for GPUs that are not here, and fit them."""

import json
import os
import subprocess
import sys
from collections import Counter

import pytest

MOST_SHARED = 99 << 10  # bytes of a block on the smallest of these GPUs, of compute capability 8.6

MOST_SPILLED = {80: 64, 90: 0}  # bytes of a thread; an A100 has fewer registers for a product


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_kernels_of_base_compile_and_fit_the_registers(tmp_path):
    pytest.importorskip("triton", reason="the package triton is not installed")
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "tests.compiled_kernels"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    names = Counter(each["kernel"] for each in found if each["capability"] == 90)
    assert names == {
        "attention._forward": 4,  # tiles of 32, 64 and 128 rows, and several tiles
        "attention._backward": 3,
        "residual._forward": 1,
        "residual._backward": 1,
        "relu._backward": 1,
        "sums._sum": 1,
        "cross_entropy._softmax_and_losses": 1,
        "beam_attention._attend": 2,  # to the past and to sources
        "best_entries._best_entries": 1,
    }
    for each in found:
        assert each["shared"] <= MOST_SHARED, each
        assert each["spilled"] <= MOST_SPILLED[each["capability"]], each
