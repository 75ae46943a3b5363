"""``nmt-cli train``: a prepared corpus becomes a model, in a run directory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nmt_cli import logs
from nmt_cli.atomic_files import file_appearing_whole, remove_leftovers
from nmt_cli.corpus.batching import refuse_longer
from nmt_cli.corpus.binarized import open_prepared
from nmt_cli.engine.machine import MachineOptions, choose_machine
from nmt_cli.engine.stop_signals import stop_requests
from nmt_cli.engine.trainer import METRICS, Trainer
from nmt_cli.errors import UserError
from nmt_cli.model_directory import CHECKPOINT_NAME, CHECKPOINTS, RECIPE, list_checkpoints
from nmt_cli.recipe.changes import ChangeKind, changed_keys
from nmt_cli.recipe.reader import dump_recipe, read_recipe
from nmt_cli.recipe.schema import Recipe

if TYPE_CHECKING:
    from typing_extensions import Unpack

SESSIONS = "sessions.jsonl"


def run(
    recipe_name: str,
    *,
    overrides: Sequence[str] = (),
    prepared: Path | None = None,
    run_dir: Path | None = None,
    resume: bool = False,
    allowed_changes: Sequence[str] = (),
    **machine_options: Unpack[MachineOptions],
) -> None:
    """Train ``recipe_name`` to its end, or until a signal asks to save and leave.

    Raises UserError for input that cannot be trained on, InterruptedTrainingError after a signal.
    """
    file = read_recipe(recipe_name, overrides)
    run_dir = run_dir or Path("runs") / file.name
    is_resumed = _check_run_dir(run_dir, file.recipe, resume=resume, allowed=allowed_changes)
    corpus = open_prepared(prepared or file.prepared, file.recipe, recipe_name)
    machine = choose_machine(file.recipe, corpus.tokenizer.size, **machine_options)
    trainer = Trainer(file.recipe, corpus, run_dir, machine)
    if is_resumed:
        trainer.resume()
        if trainer.is_complete():
            logs.info(f"{run_dir} is finished; nothing to do.")
            return
    trainer.fit_to_memory()
    sides = (corpus.source, corpus.target, corpus.validation_source, corpus.validation_target)
    refuse_longer(trainer.machine.max_tokens, *(side.lengths for side in sides))
    _describe_run(trainer)
    with stop_requests() as stop:
        trainer.train(stop)
    logs.info(f"Next: nmt-cli average-checkpoints {run_dir}")


def _check_run_dir(run_dir: Path, recipe: Recipe, *, resume: bool, allowed: Sequence[str]) -> bool:
    """Return whether there is something to resume; refuse to mix two trainings."""
    if run_dir.exists() and not run_dir.is_dir():
        raise UserError(f"{run_dir} is a file; choose another --run-dir.")
    remove_leftovers(run_dir / CHECKPOINTS, CHECKPOINT_NAME.pattern)
    if not any((run_dir / CHECKPOINTS).glob("step-*")):
        _refuse_foreign(run_dir)
        if resume:
            logs.warning(f"{run_dir} holds no checkpoint to resume from; training starts anew.")
        return False
    checkpoints = list_checkpoints(run_dir)
    if not resume:
        last = f"up to step {checkpoints[-1].step:,}" if checkpoints else "that are damaged"
        raise UserError(
            f"{run_dir} already holds checkpoints {last}. "
            "Add --resume to continue, or choose another --run-dir."
        )
    before = read_recipe(str(run_dir / RECIPE)).recipe
    refused = []
    for change in changed_keys(before, recipe):
        text = f"{change.key} (was {change.old}, is {change.new})"
        if change.kind is ChangeKind.FORBIDDEN:
            refused.append(f"{text} cannot change within a run")
        elif change.kind is ChangeKind.DECLARED and change.key not in allowed:
            refused.append(f"{text} needs --allow-change {change.key}")
        else:
            logs.info(f"Recipe changed: {text}.")
    if refused:
        raise UserError(f"{run_dir} was trained with another recipe: {'; '.join(refused)}.")
    return True


def _refuse_foreign(run_dir: Path) -> None:
    """Refuse to write over a recipe or metrics that no start of a training left."""
    if (run_dir / SESSIONS).exists():
        return
    for name in (RECIPE, METRICS):
        if (run_dir / name).exists():
            raise UserError(
                f"{run_dir / name} exists and is not a run's; choose another --run-dir."
            )


def _describe_run(trainer: Trainer) -> None:
    """Write the resolved recipe, and a line about this session: versions and machine."""
    run_dir, machine = trainer.run_dir, trainer.machine
    run_dir.mkdir(parents=True, exist_ok=True)
    with file_appearing_whole(run_dir / RECIPE, replace=True) as stream:
        stream.write(dump_recipe(trainer.recipe).encode())
    session = {"from_step": trainer.progress.step, **machine.describe()}
    with (run_dir / SESSIONS).open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(session) + "\n")
    num_parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    logs.info(
        f"Training {num_parameters:,} parameters on {machine.device} in {machine.precision}, "
        f"micro-batches of at most {machine.max_tokens:,} tokens a side, into {run_dir}."
    )
