"""``nmt-cli train``: trains a model on a prepared corpus, in a run directory.

For one device this process trains. For several devices it starts torchrun and waits; torchrun
starts this command again as the workers.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from nmt_cli.hardware.cpu import limit_spinning
from nmt_cli.launch.node_workers import Rendezvous, refuse_variables_of_others, run_workers
from nmt_cli.launch.python_process import without_collections
from nmt_cli.launch.worker import this_worker
from nmt_cli.messages import logs
from nmt_cli.messages.errors import WrongUsageError
from nmt_cli.messages.proposals import as_argument
from nmt_cli.recipe.reading.model_origin import first_model
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.saved.run_directory import ended_at_once, locked
from nmt_cli.training.experiment import Experiment
from nmt_cli.training.options import TrainOptions, refuse_unusable


def run(recipe_name: str, **keywords: Any) -> None:
    """Train ``recipe_name`` to its end, or until a signal asks to save and end.

    The keywords are the fields of ``TrainOptions``.

    Raises UserError for input that cannot be trained on, InterruptedTrainingError after a signal.
    """
    options = TrainOptions(**keywords)
    file = read_recipe(recipe_name, options.overrides)
    first_model(file.recipe, options.init_from)  # refuses two of them
    refuse_unusable(options, file.recipe)
    limit_spinning()
    # They import torch, which takes seconds; errors of the recipe come before.
    with without_collections():
        from nmt_cli.hardware.machine import count_devices
        from nmt_cli.training.session import train, train_as_worker

    experiment = Experiment.of(recipe_name, file, options)
    worker = this_worker()
    if worker is not None:
        sys.exit(train_as_worker(experiment, worker))
    num_workers = count_devices(options.devices, options.device)
    if num_workers == options.nnodes == 1:
        refuse_variables_of_others()
        train(experiment)
    else:
        _launch(experiment, num_workers)


def _launch(experiment: Experiment, num_workers: int) -> None:
    """Check everything once in this process, then train in workers."""
    options = experiment.options
    num_nodes, endpoint = options.nnodes, options.rdzv_endpoint
    if num_nodes > 1 and endpoint is None:
        raise WrongUsageError(
            f"--nnodes {num_nodes} needs --rdzv-endpoint HOST:PORT, the same on every node."
        )
    experiment.open_corpus()
    # Launchers of several nodes share the directory; their main process locks it.
    with locked(experiment.run_dir, is_logged=False) if num_nodes == 1 else nullcontext():
        experiment.check_run_directory(is_logged=False)  # the main process logs it
    rendezvous = Rendezvous(num_nodes)
    if endpoint is not None:
        rendezvous = Rendezvous(num_nodes, endpoint, options.rdzv_id or experiment.run_dir.name)
    of_worker = replace(
        options,
        run_dir=experiment.run_dir,
        devices=None,
        nnodes=1,
        rdzv_endpoint=None,
        rdzv_id=None,
    )
    words = [
        "train",
        as_argument(experiment.recipe_name),
        *of_worker.as_flags(),
        *logs.flags_of_child(),
    ]
    run_workers(num_workers, words, experiment.run_dir, rendezvous, ended_at_once)
