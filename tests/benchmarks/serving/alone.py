"""Translates each line of stdin when it comes by ``Translator``, with all threads.

python -m tests.benchmarks.serving.alone MODEL [--compile]

It prints the seconds of each line.
"""

import sys
import time

from nmt_cli.translating.translator import Translator


def main() -> None:
    """Translate until stdin ends."""
    model, *options = sys.argv[1:]
    with Translator.load(
        model, device="cpu", precision="fp32", compile="--compile" in options
    ) as translator:
        for line in sys.stdin:
            started = time.perf_counter()
            translator.submit(line.rstrip("\n")).result()
            sys.stdout.write(f"{time.perf_counter() - started}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
