"""What a model costs: speed, memory and disk; other figures each time, so apart from the others."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from nmt_cli.commands.distilling.measuring import System, num_bytes
from nmt_cli.commands.model_checks.texts import Text
from nmt_cli.commands.model_checks.timed_process import PROGRAM
from nmt_cli.launch.python_process import python_command
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.saved.model_directory import Model

ROUNDS = 3  # of both models in turn, so that another load on the machine meets both of them
TIMED_LINES = 200


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
                    env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # numpy's, as in translate
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
