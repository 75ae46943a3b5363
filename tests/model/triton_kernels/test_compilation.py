"""The kernels can be compiled for GPUs that are not here, and fit them."""

import itertools
import json
import os
import subprocess
import sys
from collections import Counter

import pytest

MOST_SHARED = 99 << 10  # bytes of a block on the smallest of these GPUs, of compute capability 8.6

MOST_SPILLED = {80: 64, 90: 8}  # bytes of a thread; an A100 has fewer registers for a product
MOST_WITH_DROPOUT = 512  # of attention, whose dropout is drawn again in the backward pass
WIDTHS = (16, 32, 64, 128)  # of a head


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_kernels_compile_for_heads_of_each_width_and_fit_the_registers(tmp_path):
    pytest.importorskip("triton", reason="the package triton is not installed")
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "tests.compiled_kernels"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    for width, capability in itertools.product(WIDTHS, MOST_SPILLED):
        of_model = [
            each for each in found if (each["d_head"], each["capability"]) == (width, capability)
        ]
        assert Counter(each["kernel"] for each in of_model) == {
            # With dropout and without: tiles of 32 and 64 rows, and several of these, or as many of
            # 128, which heads of 128 do not have.
            "attention._forward": 8 if width < 128 else 6,
            "attention._backward": 6 if width < 128 else 4,
            "residual._forward": 4,  # post-norm and pre-norm, with dropout and without
            "residual._backward": 4,
            "relu._backward": 1,
            "sums._sum": 1,
            "cross_entropy._softmax_and_losses": 1,
            "beam_attention._attend": 2,  # to the past and to sources
            "best_entries._best_entries": 1,
        }
        for each in of_model:
            has_dropout = each["constants"].get("HAS_DROPOUT", False)
            most = MOST_WITH_DROPOUT if has_dropout else MOST_SPILLED[capability]
            assert each["spilled"] <= most, each
            assert each["shared"] <= MOST_SHARED, each
            if each["constants"].get("TILE") == 32 and each["kernel"].startswith("attention"):
                assert (each["warps"], each["spilled"]) == (2 if width <= 64 else 4, 0), each
        for each in of_model:
            if each["kernel"].startswith("beam_attention"):  # reads no number by itself
                assert not {"LDG 8", "LDG 16"} & set(each["accesses"]), each
        (best,) = (each for each in of_model if each["kernel"].startswith("best_entries"))
        assert ("LDG 128" in best["accesses"]) == (width == 64)
        (loss,) = (each for each in of_model if each["kernel"].startswith("cross_entropy"))
        is_aligned = loss["constants"]["ALIGNED"] == 8
        assert is_aligned == (width == 64)  # whose vocabulary is a multiple of 8
        assert ("STG 16" in loss["accesses"]) != is_aligned
        assert ("STG 128" in loss["accesses"]) == is_aligned
