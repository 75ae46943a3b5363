"""What a model costs: speed, memory and disk; other figures each time, so apart from the others."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, cast

from nmt_cli.commands.distilling.measuring import System, num_bytes
from nmt_cli.commands.model_checks.texts import Text
from nmt_cli.commands.model_checks.timed_process import PROGRAM
from nmt_cli.launch.python_process import python_command
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.saved.model_directory import Model

TIMED_LINES = 200
ROUNDS = 3  # of both models in turn, so that another load on the machine meets both of them
BEST = {"lines_per_second": max, "ms_of_one_line": min, "megabytes_in_memory": min}  # of the rounds


def cost_of(
    models: Sequence[Model], texts: Sequence[Text], options: Mapping[str, Any]
) -> list[dict[str, float]]:
    """Return the figures of each model, the best of some rounds, each in a new process.

    ``options`` are those of a translator, with its device. Raises UserError if a process dies.
    """
    rounds = []
    with logs.progress("Timing", "processes", ROUNDS * len(models)) as counter:
        for model in [*models] * ROUNDS:
            rounds.append(_timed(model, texts[:TIMED_LINES], options))
            counter.advance(1)
    found = []
    for place, model in enumerate(models):
        own = rounds[place :: len(models)]
        system = System("", [model.path], options["precision"], model.uses_shortlist)
        figures = {key: best(each[key] for each in own) for key, best in BEST.items()}
        found.append({**figures, "megabytes_on_disk": round(num_bytes(system) / 1e6, 2)})
    return found


def _timed(model: Model, texts: Sequence[Text], options: Mapping[str, Any]) -> dict[str, float]:
    done = subprocess.run(
        python_command(PROGRAM),
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # numpy's, as in translate
        input=json.dumps([str(model.path), texts, options]),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise UserError(
            f"the process that timed {model.path} ended with status {done.returncode}; "
            "--no-cost leaves the times out."
        )
    return cast(dict[str, float], json.loads(done.stdout))
