"""``nmt-cli distil``: a small student learns from what a large teacher translates.

Its stages behind those of ``teaching``: the training's, and what ships.

preprocess, train, average  as those of ``run``, by the student's recipe
lexicon                     RUN/distillation/lexicon  if made from this prepared text
round                       RUN/distillation/int8     if trained from this average
ship                        RUN/student               if made from these averages
measure                     RUN/distillation/table    if of these models and test sets
report                      RUN/report
"""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nmt_cli.alignment.estimated_lexicon import make_lexicon, prepared_pairs
from nmt_cli.checkpoints import list_checkpoints
from nmt_cli.commands.experiments import stages, teaching
from nmt_cli.commands.experiments.distillation import Distillation
from nmt_cli.commands.experiments.experiment import Experiment
from nmt_cli.commands.experiments.measuring import TABLE, measure, measured_from, scores_on_cpu
from nmt_cli.commands.experiments.run_stages import STAGES as STAGES_OF_RUN
from nmt_cli.commands.lines.pipes import StandardOutput
from nmt_cli.commands.run import refuse_foreign, refuse_wrong_test
from nmt_cli.corpus.prepared import open_prepared, trained_on
from nmt_cli.corpus.text.recipe_text import write_sides
from nmt_cli.files.atomic_files import Partial, read_manifest, sha256
from nmt_cli.files.file_names import AVERAGE, FIGURES_FILE, LEXICON, MANIFEST, RECIPE, STUDENT_TABLE
from nmt_cli.files.folders import AVERAGED, REPORT, may_become
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.model_directory import USES_SHORTLIST, find_model, save_model, verified
from nmt_cli.recipe.keys import ChangeKind, changed_keys
from nmt_cli.recipe.reader import read_recipe
from nmt_cli.training.options import TrainOptions


def candidates(each: Distillation) -> dict[str, Path]:
    """Return the trained models; the student that ships is the one that is best in int8."""
    found = {"average": each.run_dir / AVERAGE}
    return {**found, "int8": each.rounded.run_dir / AVERAGE} if each.config.int8_steps else found


def _make_lexicon(each: Distillation, partial: Partial) -> None:
    corpus = open_prepared(each.student.prepared, each.student.recipe, "")
    tokenizer = corpus.tokenizer
    lexicon = make_lexicon(
        prepared_pairs(corpus),
        tokenizer.source_size or tokenizer.size,
        tokenizer.size,
        workers=each.options.workers,
    )
    (partial.path / LEXICON).write_bytes(lexicon.as_bytes())


def _is_rounded(each: Distillation) -> bool:
    run = each.rounded
    parts = STAGES_OF_RUN["train"], STAGES_OF_RUN["average"]
    return _goes_on_from_average(each) and all(stage.is_current(run) for stage in parts)


def _goes_on_from_average(each: Distillation) -> bool:
    """Return whether the training in int8 began from the present average, by its recipe."""
    run, checkpoints = each.rounded, list_checkpoints(each.rounded.run_dir)
    if not checkpoints:
        return False
    origin = checkpoints[-1].manifest.get("initialized_from") or {}
    before = read_recipe(str(run.run_dir / RECIPE)).recipe
    is_same = origin.get("weights_sha256") == find_model(each.run_dir / AVERAGE).weights_sha256
    changes = changed_keys(before, run.recipe)
    return is_same and all(change.kind is ChangeKind.FREE for change in changes)


def _round(each: Distillation, is_forced: bool) -> None:
    is_other = each.rounded.run_dir.exists() and not _goes_on_from_average(each)
    STAGES_OF_RUN["train"].make(each.rounded, is_forced or is_other)
    STAGES_OF_RUN["average"].make(each.rounded, is_forced)


def shipped_from(each: Distillation) -> dict[str, Any]:
    """Return what the model that ships depends on."""
    recipe = each.student.recipe
    deciding = recipe.validation.deciding(recipe.data.validation_sets)
    return {
        "candidates": {
            name: find_model(path).fingerprint for name, path in candidates(each).items()
        },
        "validation": [sha256(path) for path in deciding.paths.values()],
        "tokenize": recipe.validation.tokenize,
        "lexicon": sha256(each.folder(LEXICON) / LEXICON) if each.config.shortlist else None,
    }


def _ship(each: Distillation, partial: Partial) -> None:
    bleus = {name: _int8_bleu(each, path) for name, path in candidates(each).items()}
    best = max(bleus, key=lambda name: bleus[name])  # of equal ones the first
    for name, bleu in bleus.items():
        ships = ", and ships" if name == best else ""
        logs.info(f"BLEU of the validation text in int8: {name} {bleu:.2f}{ships}.")
    model = verified(candidates(each)[best])
    recipe = (model.path / RECIPE).read_bytes()
    save_model(partial, model.settings, recipe, model.tokenizer, model.weights, "int8")
    if each.config.shortlist:
        shutil.copyfile(each.folder(LEXICON) / LEXICON, partial.path / LEXICON)
        partial.facts[USES_SHORTLIST] = True
    averaged = model.manifest["averaged"]
    partial.facts.update(averaged=averaged, shipped=best, validation_bleu_in_int8=bleus)


def _int8_bleu(each: Distillation, model: Path) -> float:
    """Return the BLEU of a model in int8 on the validation set that decides."""
    recipe = each.student.recipe
    files = recipe.validation.deciding(recipe.data.validation_sets)
    with TemporaryDirectory() as name:
        source, target, output = (Path(name) / part for part in ("source", "target", "output"))
        write_sides(files, recipe.data, source, target)
        scores = scores_on_cpu(
            each, model, (source, target), output, tag=files.tag, precision="int8"
        )
    bleu: float = scores["bleu"]["score"]
    return bleu


def _is_reported(each: Distillation) -> bool:
    """Return whether the report is younger than the table and all else that it shows."""
    if not STAGES_OF_RUN["report"].is_current(each.student):
        return False
    report, table = (
        (folder / MANIFEST).stat().st_mtime_ns
        for folder in (each.run_dir / REPORT, each.folder(STUDENT_TABLE))
    )
    return report >= table


def _of_student(name: str) -> stages.Stage[Distillation]:
    stage: stages.Stage[Experiment] = STAGES_OF_RUN[name]
    return stages.Stage(
        lambda each: stage.is_current(each.student),
        lambda each, is_forced: stage.make(each.student, is_forced),
        lambda each: stage.why_left_out(each.student),
    )


STAGES: dict[str, stages.Stage[Distillation]] = {
    **teaching.STAGES,
    "preprocess": _of_student("preprocess"),
    "lexicon": teaching.stage_of(
        LEXICON,
        lambda each: trained_on(read_manifest(each.student.prepared)["files"]),
        _make_lexicon,
        lambda each: None if each.config.shortlist else "distillation.shortlist is false.",
    ),
    "train": _of_student("train"),
    "average": _of_student("average"),
    "round": stages.Stage(
        _is_rounded,
        _round,
        lambda each: None if each.config.int8_steps else "distillation.int8_steps is 0.",
        is_optional=True,
    ),
    "ship": stages.stage_of_folder(lambda each: each.shipped, shipped_from, _ship, kind=AVERAGED),
    "measure": teaching.stage_of(STUDENT_TABLE, measured_from, measure),
    "report": replace(_of_student("report"), is_current=_is_reported),
}


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
    wanted = stages.wanted_stages(STAGES, until, force_from)
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
    if "train" in wanted and force_from not in wanted[: wanted.index("train") + 1]:
        _refuse_another_training(each)
    anew = "--force-from train makes it anew"
    stages.take_through(STAGES, each, wanted, force_from, anew)
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
