"""preprocess on many generated pairs, with one worker and with two; prints JSON.

    python -m tests.benchmarks.large_corpus [PAIRS [FOLDER]]

The seconds of CPU time are those of all processes. On a machine that also does other work, their
ratio shows what the processes cost, and "serial", the CPU time of the process that starts the
others, what no worker can take over. The text has a vocabulary already, of white space, so that
everything but encoding counts as much as it can.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.generated_pairs import write_generated

PAIRS = 2_000_000
MEASURED = """
import json, os, resource, sys, time
from pathlib import Path
from nmt_cli.commands import preprocess

if __name__ == "__main__":
    started, before = time.monotonic(), os.times()
    preprocess.run(recipe=sys.argv[1], output=Path(sys.argv[2]), workers=int(sys.argv[3]))
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


def measure(recipe: Path, output: Path, workers: int) -> dict[str, float]:
    """Return seconds and the peak memory in bytes of preprocess in a process of its own."""
    command = [sys.executable, "-c", MEASURED, str(recipe), str(output), str(workers)]
    run = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    figures: dict[str, float] = json.loads(run.stdout)
    return figures


def main() -> None:
    """Print one line of JSON."""
    num_pairs = int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as name:
        recipe = write_generated(Path(name), num_pairs)
        figures = {n: measure(recipe, Path(name) / f"by-{n}", n) for n in (1, 2)}
    result = {
        "pairs": num_pairs,
        "microseconds_a_pair": 1e6 * figures[1]["cpu"] / num_pairs,
        "serial_microseconds_a_pair": 1e6 * figures[2]["own_cpu"] / num_pairs,
        "times_as_fast": figures[1]["seconds"] / figures[2]["seconds"],
        "cpu_of_one_to_two": figures[1]["cpu"] / figures[2]["cpu"],
        "memory": max(figures[2]["memory"], figures[2]["memory_of_a_worker"]),
        "memory_alone": figures[1]["memory"],
    }
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
