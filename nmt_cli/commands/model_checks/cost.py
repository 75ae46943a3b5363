"""What a model costs: speed, memory and disk; other figures each time, so apart from the others."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from nmt_cli.commands.distilling.measuring import System, num_bytes
from nmt_cli.commands.model_checks.texts import Text
from nmt_cli.hardware.cpu import set_num_threads
from nmt_cli.launch.python_process import python_command
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.saved.model_directory import Model
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.translator import Translator

THREADS = 2
ROUNDS = 3  # of both models in turn, so that another load on the machine meets both of them
TIMED_LINES, LINES_ALONE, WARM_UP = 200, 20, 8
PROGRAM = "from nmt_cli.commands.model_checks.cost import main; main()"


def cost_of(
    models: Sequence[Model], texts: Sequence[Text], options: Mapping[str, Any]
) -> list[dict[str, float]]:
    """Return the figures of each model, the best of some rounds, each in a new process.

    ``options`` are those of a translator, with its device. Raises UserError if a process dies.
    """
    found: list[list[dict[str, float]]] = [[] for _ in models]
    with logs.progress("Timing", "processes", ROUNDS * len(models)) as counter:
        for _ in range(ROUNDS):
            for model, figures in zip(models, found, strict=True):
                asked = [str(model.path), list(texts[:TIMED_LINES]), dict(options)]
                done = subprocess.run(
                    python_command(PROGRAM),
                    input=json.dumps(asked),
                    stdout=subprocess.PIPE,
                    text=True,
                    check=False,
                )
                if done.returncode:
                    raise UserError(
                        f"the process that timed {model.path} ended with status {done.returncode}; "
                        "--no-cost leaves the times out."
                    )
                figures.append(json.loads(done.stdout))
                counter.advance(1)
    return [
        {
            "lines_per_second": max(each["lines_per_second"] for each in figures),
            "ms_of_one_line": min(each["ms_of_one_line"] for each in figures),
            "megabytes_in_memory": min(each["megabytes_in_memory"] for each in figures),
            "megabytes_on_disk": _megabytes_on_disk(model, options["precision"]),
        }
        for model, figures in zip(models, found, strict=True)
    ]


def _megabytes_on_disk(model: Model, precision: str) -> float:
    return round(num_bytes(System("", [model.path], precision, model.uses_shortlist)) / 1e6, 2)


def main() -> None:
    """Measure one model, which stdin names, with its lines; write the figures to stdout."""
    path, texts, options = json.load(sys.stdin)
    set_num_threads(THREADS)
    translator = Translator.load(path, **options)
    requests = [Request(text, line=n, tag=tag) for n, (text, tag) in enumerate(texts, 1)]
    translator.translate_window(requests[:WARM_UP])
    seconds = list[float]()
    for window in (requests, *([request] for request in requests[:LINES_ALONE])):
        started = time.perf_counter()
        translator.translate_window(window)
        seconds.append(time.perf_counter() - started)
    figures = {
        "lines_per_second": round(len(requests) / seconds[0], 1),
        "ms_of_one_line": round(1000 * median(seconds[1:]), 2),
        "megabytes_in_memory": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, 1),
    }
    json.dump(figures, sys.stdout)
