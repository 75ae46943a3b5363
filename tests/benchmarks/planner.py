"""Plans an epoch of 36 million pairs in a process of its own; prints seconds and peak memory."""

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from nmt_cli.corpus.batching import BatchPlan
from tests.benchmarks.data import NEWS, random_lengths
from tests.benchmarks.shapes import SEED
from tests.benchmarks.worker import peak_memory

PAIRS = 36_000_000
PAIRS_AT_ONCE = 1_000_000
TOKENS_PER_STEP = 25_000


def write_lengths(folder: Path, num_pairs: int) -> None:
    """Write lengths of both sides in blocks, so that little memory is used."""
    rng = np.random.default_rng(SEED)
    with (folder / "source").open("wb") as source, (folder / "target").open("wb") as target:
        for _ in range(num_pairs // PAIRS_AT_ONCE):
            sides = random_lengths(rng, PAIRS_AT_ONCE, NEWS)
            for stream, lengths in zip((source, target), sides, strict=True):
                stream.write(lengths.astype("<u2").tobytes())


def main() -> None:
    """Print one line of JSON."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_lengths(folder, PAIRS)
        before = peak_memory()
        source, target = (np.memmap(folder / side, "<u2", "r") for side in ("source", "target"))
        started = time.perf_counter()
        plan = BatchPlan(source, target, TOKENS_PER_STEP, SEED)
        plan.batch(0)
        seconds = time.perf_counter() - started
        result = {"seconds": seconds, "memory": peak_memory(), "memory_before": before}
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
