"""About how long a training takes on this machine's CPU, without torch: by a matrix product."""

import time
from pathlib import Path

import numpy as np

from nmt_cli.costs.flops import PlannedWork
from nmt_cli.hardware.cpu import read_cpu
from nmt_cli.messages.figures import counted, time_text, with_prefix

GPU = Path("/proc/driver/nvidia/version")
SIZE = 1024  # of the matrices; they fit into a cache
TRIALS = 3
# The FLOPs of a training for each of a product in fp32, by the instructions for bf16. Two cores of
# Zen 4 trained small at 274 GFLOP/s in bf16, 160 in fp32; the product ran at 200. With AMX small
# trained at 365; the product was not measured there.
SHARES = (("amx_bf16", 1.6), ("avx512_bf16", 1.3), ("", 0.8))
LONG = 24 * 3600.0  # seconds


def seconds_here(work: PlannedWork) -> tuple[float, str] | None:
    """Return about how long ``work`` takes on this CPU, and what that is based on.

    None on a machine with a GPU, whose speed is not known here.
    """
    if GPU.exists():
        return None
    flags = read_cpu().flags
    share = next(share for flag, share in SHARES if flag in flags or not flag)
    rate = _flops_per_second()
    return work.flops / (share * rate), f"estimated: products run at {with_prefix(rate, 'FLOP/s')}"


def forecast(work: PlannedWork, *, on_cpu: bool = True) -> str:
    """Return how much a training computes, and about how long that takes on this CPU."""
    epochs = "" if work.epochs is None else f"{work.epochs:,.1f} epochs, "
    millions = f"{work.target_tokens / 1e6:,.1f} million target tokens"
    planned = f"{counted(work.steps, 'step')}, {epochs}{millions}"
    here = seconds_here(work) if on_cpu else None
    if here is None:
        return f"The training has {planned}."
    seconds, basis = here
    text = f"The training has {planned}; about {time_text(seconds)} on this machine ({basis})."
    if seconds > LONG:
        text += (
            " To shorten it, lower training.max_steps, extend a smaller recipe such as small, or "
            "use a GPU."
        )
    return text


def _flops_per_second() -> float:
    matrix = np.full((SIZE, SIZE), 0.5, dtype=np.float32)
    seconds = []
    for _ in range(1 + TRIALS):  # the first one starts threads
        begin = time.perf_counter()
        np.matmul(matrix, matrix)
        seconds.append(time.perf_counter() - begin)
    return 2 * SIZE**3 / min(seconds)
