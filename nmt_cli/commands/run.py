"""``nmt-cli run``: a whole experiment, from raw text to scores and a report."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmt_cli.commands.experiments.pipeline import (
    STAGES_OF_RUN,
    refuse_foreign,
    take_through,
    wanted_stages,
)
from nmt_cli.commands.experiments.run_stages import (
    replaced_by_run,
    result_lines,
    stages_of_run,
    why_diverged,
)
from nmt_cli.commands.lines.standard_streams import StandardOutput
from nmt_cli.corpus.references import references_of
from nmt_cli.corpus.text.parallel_text import ParallelText
from nmt_cli.corpus.text.recipe_text import read_sentences
from nmt_cli.launch.python_process import PARENT, end_with_parent
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.proposals import as_argument, command
from nmt_cli.metrics.bleu import bleu_scorer
from nmt_cli.recipe.keys import ChangeKind
from nmt_cli.recipe.reading.model_origin import first_model
from nmt_cli.recipe.reading.reader import RecipeFile, read_recipe
from nmt_cli.recipe.sections.corpora import sets_by_key
from nmt_cli.saved.checkpoints import list_checkpoints
from nmt_cli.saved.model_directory import find_model
from nmt_cli.saved.run_directory import refuse_changes
from nmt_cli.training.experiment import Experiment
from nmt_cli.training.options import TrainOptions, refuse_unusable


def run(recipe_name: str, *, until: str, force_from: str | None = None, **keywords: Any) -> None:
    """Take ``recipe_name`` through its stages; write the scores to stdout, a line a test set.

    The keywords are fields of ``TrainOptions``.

    The scores are written if ``until`` is score or report, also if all stages were skipped. A stage
    is skipped if its result is there and was made from the present inputs and settings. An
    interrupted training is resumed. From the stage ``force_from`` on, everything is made again.
    Raises UserError, which names the stage that failed, and InterruptedTrainingError.
    """
    is_of_compare = PARENT in os.environ
    if is_of_compare:  # when compare is killed, this training is saved and ends
        end_with_parent(signal.SIGTERM)
    wanted = wanted_stages(STAGES_OF_RUN, until, force_from)
    options = TrainOptions(**keywords)
    experiment = Experiment.of(recipe_name, read_recipe(recipe_name, options.overrides), options)
    is_removed = "train" in wanted and force_from in {"preprocess", "train"}
    refuse_unusable(options, experiment.recipe)
    refuse_foreign(replaced_by_run(experiment.run_dir), "run")
    if "train" in wanted:
        model = first_model(experiment.recipe, options.init_from)
        named = "--init-from" if experiment.recipe.origin is None else "model.from"
        refuse_other_origin(experiment.run_dir, model, is_removed=is_removed, named=named)
        if not is_removed and list_checkpoints(experiment.run_dir):  # before text is prepared anew
            remedy = "--run-dir, or give --force-from train to train anew"
            forbidden = [ChangeKind.FORBIDDEN]
            refuse_changes(experiment.run_dir, experiment.recipe, forbidden, remedy)
    if "translate" in wanted:
        refuse_wrong_test(experiment.file)
    anew = "--force-from train makes it anew"
    if is_of_compare:
        anew = f"to make it anew: {_command(experiment)} --force-from=train"
    stages = [stage for stage in stages_of_run(experiment) if stage.name in wanted]
    take_through(stages, force_from, anew)
    if "train" in wanted and (reason := why_diverged(experiment)):
        logs.warning(f"The training in {experiment.run_dir} diverged: {reason}.")
    if "score" in wanted:
        lines = result_lines(experiment)
        StandardOutput().write("".join(f"{line}\n" for line in lines).encode())


def _command(experiment: Experiment) -> str:
    """Return the command ``run`` for this training alone, with the options that decide it."""
    decisive = TrainOptions(
        overrides=experiment.options.overrides,
        prepared=experiment.options.prepared,
        run_dir=experiment.run_dir,
    )
    return command("nmt-cli", "run", as_argument(experiment.recipe_name), *decisive.as_flags())


def refuse_wrong_test(file: RecipeFile) -> None:
    """Raise UserError if a test set cannot be read or scored, or its sides differ in length."""
    data = file.recipe.data
    for key, test in sets_by_key("data.test", data.test).items():
        name, first = next(iter(test.paths.items()))
        if reason := file.why_missing(f"{key}.{name}", first):
            raise UserError(f"{first} does not exist{reason}.")
        if data.treebank is not None:
            sum(1 for _ in read_sentences(test, data.treebank))  # it raises what is wrong
        else:
            targets = [target for _, target in ParallelText(test)]  # it raises what is wrong
            # Before the training, because it may need packages that are not installed.
            bleu_scorer(references_of(file.recipe, targets).tokenizer.tokenize)


def refuse_other_origin(
    run_dir: Path,
    model: Path | None,
    *,
    named: str = "--init-from",
    option: str = "--run-dir",
    is_removed: bool = False,
) -> None:
    """Raise UserError if the training in ``run_dir`` did not begin from ``model``.

    ``named`` is the option or the key of the recipe that gives the model; None stands for random
    weights. ``option`` names another folder for runs. Before a training begins, the model must only
    be there. If the run ``is_removed`` first, the model must not be a part of it.
    """
    checkpoints = [] if is_removed else list_checkpoints(run_dir)
    if not checkpoints:
        found = find_model(model).path if model is not None else None
        if is_removed and found and found.resolve().is_relative_to(run_dir.resolve()):
            raise UserError(
                f"{named} {model} is a part of {run_dir}, which would be removed first; "
                f"choose another {option}."
            )
        return
    origin = checkpoints[-1].manifest.get("initialized_from")
    if origin is None and model is None:
        return
    asked = f"no {named} is given" if model is None else f"{named} is {model}"
    if origin is not None and model is not None:
        if _is_origin(model, origin):
            return
        asked += ", which has other weights" if model.exists() else ", which does not exist"
    began, remedy = "random weights", f"leave {named} out"
    if origin is not None:
        began, remedy = f"the weights of {origin['path']}", f"give {named} {origin['path']}"
    raise UserError(
        f"the training in {run_dir} began from {began}, but {asked}; {remedy}, or choose another "
        f"{option}."
    )


def _is_origin(model: Path, origin: Mapping[str, Any]) -> bool:
    if not model.exists():  # it may be removed once the training has begun
        return Path(origin["path"]).resolve().is_relative_to(model.resolve())
    return find_model(model).weights_sha256 == origin["weights_sha256"]
