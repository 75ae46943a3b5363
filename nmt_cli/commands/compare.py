"""``nmt-cli compare``: trains a set of recipes and prints a table like the paper's Table 3.

Each training is a process of its own, ``nmt-cli run``, so that several devices train at the same
time, and one failure does not end the others. What is finished is skipped, and what was interrupted
goes on, because ``run`` does so.
"""

import json
import shlex
import subprocess
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from nmt_cli.commands import run as run_command
from nmt_cli.commands.experiments.comparison_table import (
    ComparedRow,
    as_rows,
    as_table,
    bleu_tests,
)
from nmt_cli.commands.experiments.pipeline import refuse_foreign
from nmt_cli.commands.experiments.run_stages import replaced_by_run
from nmt_cli.commands.lines.standard_streams import StandardOutput
from nmt_cli.commands.scoring.system_comparison import Comparison
from nmt_cli.files.file_names import METRICS, RUNS
from nmt_cli.files.folders import not_a_run
from nmt_cli.hardware.cpu import threads_of_each
from nmt_cli.hardware.machine import count_devices
from nmt_cli.hardware.machine_options import device_name
from nmt_cli.launch.python_process import NMT_CLI, environment_of_child, python_command
from nmt_cli.launch.run_status import is_finished, read_status
from nmt_cli.launch.stop_signals import handling_stop_signals
from nmt_cli.messages import logs
from nmt_cli.messages.errors import InterruptedTrainingError, RecipeError, UserError
from nmt_cli.messages.figures import counted, null_if_not_finite
from nmt_cli.messages.proposals import as_argument
from nmt_cli.recipe.keys import ChangeKind, keys_of_text
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.recipe.reading.shipped import SUFFIX, shipped_recipes
from nmt_cli.recipe.schema import Recipe
from nmt_cli.report.run_history import read_runs
from nmt_cli.saved.checkpoints import list_checkpoints
from nmt_cli.saved.run_directory import changes_since, is_trained_by, refuse_changes
from nmt_cli.training.experiment import Experiment
from nmt_cli.training.options import TrainOptions


def run(
    recipe_names: Sequence[str],
    *,
    seeds: Sequence[int] = (),
    runs: Path | None = None,
    devices: int | None = None,
    output_format: str = "text",
    **keywords: Any,
) -> None:
    """Train every recipe with every seed; write a table of all to stdout.

    The runs are in ``runs``/NAME, or with seeds in ``runs``/NAME/seed-N. If ``runs``/NAME is a
    finished run of the same recipe and one of the seeds, it is used. Raises UserError if a
    training fails, after the others, and InterruptedTrainingError if they were interrupted.
    """
    options = TrainOptions(**keywords)
    trainings = _trainings(recipe_names, seeds, runs or Path(RUNS), options)
    _refuse_shared_folders(trainings)
    for training in trainings:
        refuse_foreign(replaced_by_run(training.run_dir), "run", "--runs")
        _refuse_another_training(training)
    of_each_recipe = {training.recipe_name: training for training in trainings}
    for training in of_each_recipe.values():
        run_command.refuse_wrong_test(training.file)
    for training in of_each_recipe.values():  # one after the other: several may share a folder
        run_command.run(training.recipe_name, until="preprocess", **vars(training.options))
    failed = _train_all(trainings, _devices(devices, options), options)
    unfinished = [training for training in failed if _is_begun(training.run_dir)]
    done = [training for training in trainings if training not in failed]
    if shown := [each for each in trainings if each in done or each in unfinished]:
        histories = read_runs([training.run_dir for training in shown])
        rows = as_rows([training.file.name for training in shown], histories)
        tests = bleu_tests(done)
        output = _as_json(rows, tests, done) if output_format == "json" else _as_text(rows, tests)
        StandardOutput().write(f"{output}\n".encode())
    names = ", ".join(str(training.run_dir) for training in failed)
    number = f"{len(failed)} of {counted(len(trainings), 'training')}"
    if len(failed) > len(unfinished):
        raise UserError(
            f"{number} failed ({names}); the messages above give the reasons, with options of "
            "nmt-cli run. Run the same command again to go on with them."
        )
    if unfinished:
        raise InterruptedTrainingError(
            f"{number} reached --max-time ({names}), and are saved. Run the same command again to "
            "go on with them."
        )


def _is_begun(run_dir: Path) -> bool:
    """Return whether the training in ``run_dir`` was interrupted after a step."""
    status, metrics = read_status(run_dir), run_dir / METRICS
    is_interrupted = status is not None and status.state == "interrupted"
    return is_interrupted and metrics.exists() and metrics.stat().st_size > 0


def _as_json(
    rows: Sequence[ComparedRow], tests: Mapping[str, Comparison], runs: Sequence[Experiment]
) -> str:
    names = {str(run.run_dir): run.file.name for run in runs}
    entries = {row.name: row.as_json() for row in rows}
    for of_set, test in tests.items():
        for system in test.as_figures()["systems"]:
            of_row = entries[names[system["name"]]].setdefault("bleu_tests", {})
            of_row.setdefault(of_set, []).append({"run": system["name"], **system["bleu"]})
    return json.dumps(null_if_not_finite([*entries.values()]), indent=2)


def _as_text(rows: Sequence[ComparedRow], tests: Mapping[str, Comparison]) -> str:
    parts = (f"{name}:\n{test.as_table()}" for name, test in tests.items())
    return "\n\n".join([as_table(rows), *parts])


def _trainings(
    names: Sequence[str], seeds: Sequence[int], runs: Path, options: TrainOptions
) -> list[Experiment]:
    """Return what to train. Raises UserError for a wrong recipe, or one that is given twice."""
    found: list[Experiment] = []
    for given in (recipe for name in names for recipe in _recipes_of(name)):
        for seed in seeds or (None,):
            of_seed = [] if seed is None else [f"training.seed={seed}"]
            overrides = [*options.overrides, *of_seed]
            file = read_recipe(given, overrides)
            run_dir = runs / file.name
            if seed is not None and not _is_finished_run_of(file.recipe, run_dir):
                run_dir /= f"seed-{seed}"
            of_run = replace(options, overrides=overrides, run_dir=run_dir)
            found.append(Experiment.of(given, file, of_run))
    folders = [training.run_dir for training in found]
    for folder in folders:
        if problem := not_a_run(folder):
            raise UserError(f"{folder} {problem}; give --seeds, or choose another --runs.")
        if folders.count(folder) > 1:
            raise UserError(
                f"{folder} would be the folder of several trainings; give each recipe and each "
                "seed once."
            )
    return found


def _is_finished_run_of(recipe: Recipe, run_dir: Path) -> bool:
    """Return whether ``run_dir`` itself is this training, and finished."""
    checkpoints = list_checkpoints(run_dir)
    if not checkpoints or not is_finished(run_dir):
        return False
    began_from = checkpoints[-1].manifest.get("initialized_from")
    is_same_origin = (began_from is None) == (recipe.origin is None)  # not with --init-from
    with suppress(RecipeError):  # its recipe is missing, damaged or of another version
        return is_same_origin and not changes_since(run_dir, recipe)
    return False


def _refuse_another_training(planned: Experiment) -> None:
    """Raise UserError if the run is one that this training cannot go on with.

    Otherwise this would be found only when its turn comes. A run whose recipe cannot be read fails
    then, and does not keep the others from being trained.
    """
    run_dir, recipe = planned.run_dir, planned.recipe
    with suppress(RecipeError):
        if list_checkpoints(run_dir) and not is_trained_by(recipe, run_dir):
            kinds, remedy = set(ChangeKind) - {ChangeKind.FREE}, "--runs, or move it away"
            refuse_changes(run_dir, recipe, kinds, remedy)
    run_command.refuse_other_origin(run_dir, recipe.origin, named="model.from", option="--runs")


def _refuse_shared_folders(trainings: Sequence[Experiment]) -> None:
    """Raise UserError if recipes with different text would be prepared in one folder."""
    first: dict[Path, tuple[str, dict[str, Any]]] = {}
    for training in trainings:
        name, settings = training.file.name, keys_of_text(training.recipe)
        first_name, others = first.setdefault(training.prepared, (name, settings))
        if settings != others:
            raise UserError(
                f"{first_name} and {name} differ in data or tokenizer, but both would be prepared "
                f"in {training.prepared}; give each its own data.prepared, without --prepared."
            )


def _recipes_of(name: str) -> list[str]:
    """Return the recipes in the folder ``name``, shipped or not, base first; else ``name``."""
    folder = name.rstrip("/")
    inside = [recipe for recipe in shipped_recipes() if recipe.startswith(f"{folder}/")]
    inside = inside or sorted(str(file) for file in Path(name).glob(f"*{SUFFIX}"))
    return sorted(inside, key=lambda recipe: Path(recipe).stem != "base") or [name]


def _devices(devices: int | None, options: TrainOptions) -> list[str]:
    """Return the device of each training that runs at the same time."""
    device = options.device
    num_devices = count_devices(devices, device)
    if device_name(device) == "cpu":
        return ["cpu"] * num_devices
    return [device] if num_devices == 1 else [f"cuda:{index}" for index in range(num_devices)]


def _train_all(
    trainings: Sequence[Experiment], devices: Sequence[str], options: TrainOptions
) -> list[Experiment]:
    """Do the trainings, as many at a time as there are devices; return those that failed."""
    threads = options.threads
    if threads is None and devices[0] == "cpu":
        threads = threads_of_each(len(devices))
    free: SimpleQueue[str] = SimpleQueue()
    for device in devices:
        free.put(device)
    children = _Children()

    def train(training: Experiment) -> int | None:
        device = free.get()
        try:
            return children.call(_command(training, device, threads))
        finally:
            free.put(device)

    with handling_stop_signals(children.handle), ThreadPoolExecutor(len(devices)) as pool:
        statuses = list(pool.map(train, trainings))
    if children.is_stopping:
        raise InterruptedTrainingError(
            "compare was interrupted, and what was training is saved. Run the same command again "
            "to continue."
        )
    return [t for t, status in zip(trainings, statuses, strict=True) if status]


def _command(training: Experiment, device: str, threads: int | None) -> list[str]:
    of_training = replace(training.options, device=device, devices=1, threads=threads)
    words = ["run", as_argument(training.recipe_name), "--until=score", *of_training.as_flags()]
    return python_command(NMT_CLI, *words, *logs.flags_of_child())


class _Children:
    """The trainings that run now. A signal is passed on to them, and no further one begins."""

    def __init__(self) -> None:
        self.is_stopping = False
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.RLock()  # a second signal may come while the first is handled

    def handle(self, number: int, _: object) -> None:
        with self._lock:
            self.is_stopping = True
            for child in self._running:
                child.send_signal(number)

    def call(self, command: Sequence[str]) -> int | None:
        """Run ``command`` to its end; return its exit status, or None if it was not begun."""
        with self._lock:
            if self.is_stopping:
                return None
            logs.info(shlex.join(["nmt-cli", *command[3:]]))
            # In a session of its own, so that Ctrl-C reaches it once, through ``handle``.
            child = subprocess.Popen(
                command,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                env=environment_of_child(),
            )
            self._running.add(child)
        status = child.wait()
        with self._lock:
            self._running.remove(child)
        return status
