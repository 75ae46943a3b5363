"""preprocess on many generated pairs, with one worker and with two; prints JSON.

    python -m tests.benchmarks.large_corpus [PAIRS [FOLDER]]

The tokenizer is given. "serial" is the CPU time of the process that starts the others, which no
worker can take over. On a machine that also does other work, CPU times tell more than seconds:
"by_cpu" is how many times as fast two workers are if nothing else computes on two cores.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.generated_pairs import write_generated

PAIRS, FEW_PAIRS = 2_000_000, 20_000
TRAINED = "tokenizer={type: sentencepiece, vocabulary_size: 2000}"
MEASURED = """
import json, os, resource, sys, time
from pathlib import Path
from nmt_cli.commands import preprocess

if __name__ == "__main__":
    started, before = time.monotonic(), os.times()
    preprocess.run(
        recipe=sys.argv[1],
        output=Path(sys.argv[2]),
        workers=int(sys.argv[3]),
        overrides=sys.argv[4:],
    )
    seconds, after = time.monotonic() - started, os.times()
    own = after.user + after.system - before.user - before.system
    peak = Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]
    print(json.dumps({
        "seconds": seconds,
        "own_cpu": own,
        "cpu": own + after.children_user + after.children_system,
        "memory": 1024 * int(peak),
        "memory_of_a_worker": 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss,
    }))
"""


def measure(recipe: Path, output: Path, workers: int, *overrides: str) -> dict[str, float]:
    """Return seconds and the peak memory in bytes of preprocess in a process of its own."""
    command = [sys.executable, "-c", MEASURED, str(recipe), str(output), str(workers), *overrides]
    run = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    figures: dict[str, float] = json.loads(run.stdout)
    return figures


def main() -> None:
    """Print one line of JSON."""
    num_pairs = int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as name:
        folder = Path(name)
        few = write_generated(folder / "few", FEW_PAIRS)
        measure(few, folder / "tokenizer", 1, TRAINED)
        model = folder / "tokenizer" / "tokenizer.model"
        given = f"tokenizer={{type: sentencepiece, model: {model}}}"
        recipe = write_generated(folder / "text", num_pairs)
        one, two = (measure(recipe, folder / f"by-{n}", n, given) for n in (1, 2))
    result = {
        "pairs": num_pairs,
        "microseconds_a_pair": 1e6 * one["cpu"] / num_pairs,
        "serial_microseconds_a_pair": 1e6 * two["own_cpu"] / num_pairs,
        "times_as_fast": one["seconds"] / two["seconds"],
        "by_cpu": 2 * one["cpu"] / two["cpu"],
        "memory": max(two["memory"], two["memory_of_a_worker"]),
        "memory_alone": one["memory"],
    }
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
