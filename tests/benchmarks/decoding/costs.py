"""What translating costs beside its rate: the time of a sentence alone, memory, and starting."""

import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from nmt_cli.messages import logs
from tests.benchmarks import speed, targets
from tests.benchmarks.decoding.sample import ALONE, USUAL
from tests.benchmarks.processes import Toolkit, WorkerError

# Precisions by toolkit.
Engines = Sequence[tuple[Toolkit, str]]

ROUNDS = speed.Rounds(warm_up=1, counted=1, max_rounds=5, seconds=100)
LARGE_BATCH = {True: "128", False: USUAL}  # sentences of a peer; ours chooses tokens
TURNS_OF_STARTING = 10
LINES_OF_STARTING = 40
START = ("import torch", "one line", "one process", "two processes")


def measure(
    engines: Engines, threads: int, lines: Sequence[str], model: Path, open_worker: speed.OpenWorker
) -> dict[str, Any]:
    """Return seconds of a sentence and bytes, by toolkit and precision, and seconds of starting."""
    logs.info("sentences alone, memory, starting")
    return {
        "seconds": _seconds_alone(engines, threads, open_worker),
        "bytes": _memory(engines, threads, open_worker),
        "starts": _starts(model, lines[:LINES_OF_STARTING]),
    }


def _seconds_alone(
    engines: Engines, threads: int, open_worker: speed.OpenWorker
) -> dict[str, float]:
    """Return the seconds of a sentence of each engine, by one thread or by all."""
    found: dict[str, float] = {}
    # The peer float32, of fp32 and bf16, is in the group of fp32, which counts as the last one.
    ours_of_peer = {peer: ours for ours, peer in reversed(targets.OF_PEER.items())}
    groups = product(targets.OF_PEER, dict.fromkeys((1, threads)))
    # In each group an engine has a process of its own, and one precision. Where a process has more
    # OpenMP threads than there are cores, as two translators have, those that wait sleep at once.
    # CTranslate2 with two threads always has more, except in float32: the thread that loads rounds
    # the weights with threads of its own, which stay.
    for precision, number in groups:
        rows = [
            speed.Row(toolkit, f"{name} 1x{number} {ALONE}")
            for toolkit, name in engines
            if ours_of_peer.get(name, name) == precision
        ]
        for toolkit, variants in speed.measure(rows, open_worker, ROUNDS)["rows"].items():
            for variant, figures in variants.items():
                engine, seconds = f"{toolkit} {variant.split()[0]}", 1 / figures["rate"]
                found[engine] = min(found.get(engine, seconds), seconds)
    return found


def _memory(engines: Engines, threads: int, open_worker: speed.OpenWorker) -> dict[str, int]:
    """Return what one process of each engine needs after the sample, above `import torch`."""
    found = {}
    for toolkit, name in engines:
        variant = f"{name} 1x{threads} {LARGE_BATCH[toolkit.is_peer]}"
        try:
            with open_worker(toolkit) as worker:
                answer = worker.turn(variant, 0, 1)
        except WorkerError:
            continue  # the table of rates has the reason
        found[f"{toolkit.name} {name}"] = answer["memory_after_import"]
    return found


def _starts(model: Path, lines: Sequence[str]) -> dict[str, float]:
    """Return the medians of alternating turns; the commands read ``lines`` or the first of them."""
    translate = [sys.executable, "-m", "nmt_cli", "translate", str(model), "--quiet"]
    commands = [
        ([sys.executable, "-c", "import torch"], 0),
        (translate, 1),
        ([*translate, "--workers=1"], len(lines)),
        ([*translate, "--workers=2"], len(lines)),
    ]
    seconds: dict[str, list[float]] = {name: [] for name in START}
    for _ in range(TURNS_OF_STARTING):
        for name, (command, number) in zip(START, commands, strict=True):
            text = "".join(f"{line}\n" for line in lines[:number])
            started = time.perf_counter()
            subprocess.run(command, input=text, text=True, check=True, stdout=subprocess.DEVNULL)
            seconds[name].append(time.perf_counter() - started)
    return {name: median(each) for name, each in seconds.items()}
