"""Prints the median seconds of a line alone by ``Translator``, with all threads.

python -m tests.benchmarks.serving.alone MODEL < LINES
"""

import sys
import time
from statistics import median

from nmt_cli.translating.translator import Translator


def main() -> None:
    """Translate each line of stdin after the other, twice; the second time counts."""
    lines = sys.stdin.read().splitlines()
    with Translator.load(sys.argv[1], device="cpu", precision="fp32") as translator:
        for _ in range(2):
            seconds = []
            for line in lines:
                started = time.perf_counter()
                translator.submit(line).result()
                seconds.append(time.perf_counter() - started)
    sys.stdout.write(f"{median(seconds)}\n")


if __name__ == "__main__":
    main()
