"""``nmt-cli average-checkpoints``: the last checkpoints of a run become one model."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nmt_cli.files.atomic_files import directory_appearing_whole
from nmt_cli.files.file_names import AVERAGE, AVERAGE_INT8, RECIPE
from nmt_cli.files.folders import AVERAGED, is_run, refuse_output, wrong_folder
from nmt_cli.files.locks import claimed
from nmt_cli.hardware.cpu import set_num_threads
from nmt_cli.messages import logs
from nmt_cli.messages.errors import DamagedError, UserError
from nmt_cli.messages.figures import counted
from nmt_cli.messages.proposals import any_of
from nmt_cli.recipe.model_settings import common_characters
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.saved.checkpoints import Checkpoint, ToAverage, list_checkpoints, to_average
from nmt_cli.saved.model_directory import (
    Model,
    find_model,
    keep_common_lexicon,
    save_model,
    verified,
)
from nmt_cli.saved.training_state import mean_weights


def run(
    run_dir: Path,
    *,
    last: int | None = None,
    checkpoints: Sequence[Path] = (),
    output: Path | None = None,
    precision: str = "fp32",
    force: bool = False,
) -> None:
    """Write the mean of the chosen checkpoints as a model directory.

    It averages ``checkpoints``, or else the ``last`` regular or final ones of the run, by default
    as many as the recipe's keep_for_average without those that ``to_average`` finds too early, into
    RUN/average. With ``precision`` int8 the model has a quarter of the size and goes into
    RUN/average-int8. Raises UserError if there are too few, if they do not fit together or if the
    output exists without ``force``, and DamagedError if one is damaged. If a training removes one
    meanwhile, the last ones are chosen once more.
    """
    if not run_dir.exists() or (not is_run(run_dir) and not checkpoints):
        raise wrong_folder(run_dir, "run")
    set_num_threads(None)
    given = [_checkpoint(path) for path in checkpoints]
    output = output or run_dir / (AVERAGE if precision == "fp32" else AVERAGE_INT8)
    with claimed(output, "--output"):
        refuse_output(output, AVERAGED, "an average", force=force)
        if given:
            models = [verified(path) for path in given]
            _refuse_repeated(models)
            _write_average(models, output, precision, replace=force)
        else:
            _write_average_of_last(run_dir, last, output, precision, replace=force)


def _write_average_of_last(
    run_dir: Path, last: int | None, output: Path, precision: str, *, replace: bool
) -> None:
    """Average the last checkpoints; choose them once more if a training removes one meanwhile."""
    removed: list[Path] = []
    for _ in range(2):
        found = _last(run_dir, last)
        chosen = [checkpoint.path for checkpoint in found.chosen]
        try:
            models = [verified(path) for path in chosen]
            _write_average(models, output, precision, replace=replace)
            _warn_of_equal(models)
            if remark := found.remark(run_dir):
                logs.info(remark)
            return
        except (DamagedError, FileNotFoundError):
            removed = [path for path in chosen if not path.exists()]
            if not removed:
                raise
    raise UserError(
        f"{removed[0]} was removed while it was averaged: a training goes on there, which keeps "
        "only its newest checkpoints. Run the command again, or give a smaller --last."
    )


def _write_average(models: Sequence[Model], output: Path, precision: str, *, replace: bool) -> None:
    _refuse_unfit(models)
    newest, chosen = models[-1], [model.path for model in models]
    recipe = (newest.path / RECIPE).read_bytes()
    characters = common_characters(*(model.settings for model in models))
    settings = newest.settings._replace(characters=characters)
    with directory_appearing_whole(output, replace=replace) as partial:
        save_model(partial, settings, recipe, newest.tokenizer, mean_weights(chosen), precision)
        partial.manifest.update(kind=AVERAGED, averaged=list(map(_as_averaged, models)))
        keep_common_lexicon(models, partial)
    logs.info(f"Averaged {', '.join(path.name for path in chosen)} into {output}.")


def _checkpoint(path: Path) -> Path:
    if path.name.isdecimal() and not path.exists():
        raise UserError(
            f"{path} is not a checkpoint folder; to average the last {path} give --last {path}."
        )
    return find_model(path).path


def _last(run_dir: Path, given: int | None) -> ToAverage:
    checkpoints = list_checkpoints(run_dir)
    available = [c for c in checkpoints if c.enters_average]
    if checkpoints and not available:
        newest = checkpoints[-1].path
        raise UserError(
            f"{run_dir} holds only checkpoints that were saved for safety, such as {newest}, which "
            "are not averaged unless you name them. Continue with train --resume, or name them: "
            f"--checkpoints {shlex.quote(str(newest))}."
        )
    if given is not None:
        count, found = given, ToAverage(available[-given:], [])
    elif not available:
        raise UserError(f"{run_dir} holds no checkpoint yet; train it first.")
    else:
        recipe = read_recipe(str(available[-1].path / RECIPE)).recipe
        count, found = recipe.checkpoints.keep_for_average, to_average(available, recipe)
    if len(available) < count:
        steps = ", ".join(str(checkpoint.step) for checkpoint in available) or "none"
        raise UserError(
            f"average-checkpoints needs {counted(count, 'checkpoint')}, {run_dir} has "
            f"{len(available)} (steps {steps}). Train longer{_or_fewer(available)}."
        )
    return found


def _or_fewer(available: Sequence[Checkpoint]) -> str:
    if not available:
        return ""
    chosen = to_average(available, read_recipe(str(available[-1].path / RECIPE)).recipe).chosen
    return f" or give --last {len(chosen)}"


def _refuse_repeated(models: Sequence[Model]) -> None:
    """Raise UserError for a checkpoint that the user gives twice, or the weights of another one."""
    seen: dict[str, Path] = {}
    for model in models:
        first = seen.get(model.weights_sha256)
        if first is not None:
            problem = f"has the same weights as {first}; leave one of them out"
            if first.resolve() == model.path.resolve():
                problem = "is given twice; give each checkpoint once"
            raise UserError(f"{model.path} {problem}.")
        seen[model.weights_sha256] = model.path


def _warn_of_equal(models: Sequence[Model]) -> None:
    """Warn if training has changed no weight between some of the checkpoints of a run."""
    steps: dict[str, list[str]] = {}
    for model in models:
        steps.setdefault(model.weights_sha256, []).append(f"{model.manifest['step']:,}")
    for equal in (each for each in steps.values() if len(each) > 1):
        logs.warning(
            f"the checkpoints of steps {any_of(equal, 'and')} have the same weights, as with a "
            "learning rate of 0, so averaging them gains nothing. Train with more "
            "training.decay_steps to average different ones."
        )


def _refuse_unfit(models: Sequence[Model]) -> None:
    """Raise UserError for a model that differs from the first."""
    first = models[0]
    for model in models:
        is_alike = model.settings.architecture == first.settings.architecture
        if not is_alike or model.tokenizer_sha256 != first.tokenizer_sha256:
            what = "tokenizer" if is_alike else "model"
            raise UserError(
                f"{model.path} has another {what} than {first.path}; they cannot be averaged."
            )


def _as_averaged(model: Model) -> dict[str, Any]:
    return {
        "name": model.path.name,
        "step": model.manifest.get("step"),
        "sha256": model.weights_sha256,
        "prepared_files": model.manifest.get("prepared_files"),
    }
