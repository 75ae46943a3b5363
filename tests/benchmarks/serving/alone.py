"""Translates each line of stdin when it comes by ``Translator``, with all threads.

python -m tests.benchmarks.serving.alone MODEL --precision=PRECISION

It prints the seconds of each line.
"""

import sys
import time

from nmt_cli.translating.translator import Translator


def main() -> None:
    """Translate until stdin ends."""
    model, given = sys.argv[1:]
    precision = given.removeprefix("--precision=")
    with Translator.load(model, device="cpu", precision=precision) as translator:
        for line in sys.stdin:
            started = time.perf_counter()
            translator.submit(line.rstrip("\n")).result()
            sys.stdout.write(f"{time.perf_counter() - started}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
