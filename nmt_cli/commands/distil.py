"""``nmt-cli distil``: a small student learns from what a large teacher translates."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nmt_cli.checkpoints import list_checkpoints
from nmt_cli.commands.experiments.distil_stages import STAGES
from nmt_cli.commands.experiments.distillation import Distillation
from nmt_cli.commands.experiments.measuring import TABLE
from nmt_cli.commands.experiments.stages import STAGES_OF_DISTIL, take_through, wanted_stages
from nmt_cli.commands.lines.pipes import StandardOutput
from nmt_cli.commands.run import refuse_foreign, refuse_wrong_test
from nmt_cli.files.file_names import FIGURES_FILE, RECIPE, STUDENT_TABLE
from nmt_cli.files.folders import may_become
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.model_directory import find_model
from nmt_cli.recipe.changes import ChangeKind, changed_keys
from nmt_cli.recipe.reader import read_recipe
from nmt_cli.training.options import TrainOptions


def run(
    teachers: Sequence[Path],
    recipe_name: str,
    *,
    reverse_model: Path | None = None,
    taught: Path | None = None,
    until: str,
    force_from: str | None = None,
    output_format: str = "text",
    **keywords: Any,
) -> None:
    """Take the student of ``recipe_name`` through its stages; write the table to stdout.

    Several ``teachers`` are an ensemble. The keywords are fields of ``TrainOptions``. A stage is
    skipped if its result was made from the present inputs and settings; one that was interrupted
    goes on. Raises UserError, which names the stage that failed, and InterruptedTrainingError.
    """
    wanted = wanted_stages(STAGES, until, force_from)
    arguments = keywords.pop("arguments", ())  # of the command line, for advice
    options = TrainOptions(**keywords)
    file = read_recipe(recipe_name, options.overrides)
    each = Distillation(teachers, reverse_model, file, options, taught, arguments)
    refuse_foreign(each.run_dir, "--run-dir")
    for folder_of, kind in filter(None, (stage.replaces for stage in STAGES.values())):
        if not may_become(folder := folder_of(each), kind):
            raise UserError(
                f"{folder} exists, and `nmt-cli distil` did not write it; move it away, or choose "
                "another --run-dir."
            )
    if reverse_model is not None:
        find_model(reverse_model)
    each.refuse_unfit()
    if file.recipe.data.test is not None:
        refuse_wrong_test(file)
    if "train" in wanted and force_from not in STAGES_OF_DISTIL[: wanted.index("train") + 1]:
        _refuse_another_training(each)
    anew = "--force-from train makes it anew"
    take_through(STAGES, each, wanted, force_from, anew)
    if "ship" in wanted:
        logs.info(f"The student is {each.shipped}.")
    if "measure" in wanted:
        name = FIGURES_FILE if output_format == "json" else TABLE
        StandardOutput().write((each.folder(STUDENT_TABLE) / name).read_bytes())


def _refuse_another_training(each: Distillation) -> None:
    """Raise UserError if the run cannot go on with this student, before the teacher translates."""
    run_dir = each.run_dir
    if not list_checkpoints(run_dir):
        return
    before = read_recipe(str(run_dir / RECIPE)).recipe
    changes = [
        change
        for change in changed_keys(before, each.student.recipe)
        if change.kind is ChangeKind.FORBIDDEN
    ]
    if changes:
        raise UserError(
            f"{run_dir} was trained with another recipe: {', '.join(map(str, changes))}. Choose "
            "another --run-dir, or give --force-from train to train anew."
        )
