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
from nmt_cli.commands.distilling.distillation import Distillation, TeacherServer
from nmt_cli.commands.distilling.measuring import TABLE, measure, measured_from, scores_on_cpu
from nmt_cli.commands.distilling.teaching import stages_of_teaching
from nmt_cli.commands.experiments.pipeline import (
    STAGES_OF_DISTIL,
    PipelineStage,
    folder_stage,
    refuse_foreign,
    take_through,
    wanted_stages,
)
from nmt_cli.commands.experiments.run_stages import replaced_by_run, stages_of_run, why_diverged
from nmt_cli.commands.lines.standard_streams import StandardOutput
from nmt_cli.commands.run import refuse_other_origin, refuse_wrong_test
from nmt_cli.corpus.prepared import open_prepared, trained_on
from nmt_cli.corpus.text.recipe_text import write_sides
from nmt_cli.files.atomic_files import Partial, read_manifest, sha256
from nmt_cli.files.file_names import AVERAGE, FIGURES_FILE, LEXICON, RECIPE, STUDENT_TABLE
from nmt_cli.files.folders import AVERAGED, DISTILLED
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.recipe.keys import ChangeKind
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.saved.checkpoints import list_checkpoints
from nmt_cli.saved.model_directory import USES_SHORTLIST, find_model, save_model, verified
from nmt_cli.saved.run_directory import changes_since, refuse_changes
from nmt_cli.training.experiment import Experiment
from nmt_cli.training.options import TrainOptions


def candidates(job: Distillation) -> dict[str, Path]:
    """Return the trained models; the student that ships is the one that is best in int8."""
    found = {"average": job.run_dir / AVERAGE}
    return {**found, "int8": job.int8_run.run_dir / AVERAGE} if job.config.int8_steps else found


def _lexicon_from(job: Distillation) -> dict[str, Any]:
    return trained_on(read_manifest(job.student.prepared)["files"])


def _make_lexicon(job: Distillation, partial: Partial) -> None:
    corpus = open_prepared(job.student.prepared, job.student.recipe, "")
    tokenizer = corpus.tokenizer
    lexicon = make_lexicon(
        prepared_pairs(corpus),
        tokenizer.source_size or tokenizer.size,
        tokenizer.size,
        workers=job.options.workers,
    )
    (partial.path / LEXICON).write_bytes(lexicon.as_bytes())


def _is_quantized(job: Distillation) -> bool:
    return _goes_on_from_average(job) and all(
        stage.is_made(stage.subject) for stage in _int8_stages(job)
    )


def _int8_stages(job: Distillation) -> list[PipelineStage]:
    stages = stages_of_run(job.int8_run)
    return [stage for stage in stages if stage.name in ("train", "average")]


def _goes_on_from_average(job: Distillation) -> bool:
    """Return whether the training in int8 began from the present average, by its recipe."""
    run_dir, recipe = job.int8_run.run_dir, job.int8_run.recipe
    if not list_checkpoints(run_dir):
        return False
    try:
        refuse_other_origin(run_dir, job.run_dir / AVERAGE)
    except UserError:
        return False
    return all(change.kind is ChangeKind.FREE for change in changes_since(run_dir, recipe))


def _quantize(job: Distillation, is_forced: bool) -> None:
    is_other = job.int8_run.run_dir.exists() and not _goes_on_from_average(job)
    for stage in _int8_stages(job):
        stage.make(stage.subject, is_forced or is_other)


def shipped_from(job: Distillation) -> dict[str, Any]:
    """Return what the model that ships depends on."""
    recipe = job.student.recipe
    deciding = recipe.validation.deciding(recipe.data.validation_sets)
    return {
        "candidates": {
            name: find_model(path).fingerprint for name, path in candidates(job).items()
        },
        "validation": [sha256(path) for path in deciding.paths.values()],
        "tokenize": recipe.validation.tokenize,
        "lexicon": sha256(job.folder(LEXICON) / LEXICON) if job.config.shortlist else None,
    }


def _ship(job: Distillation, partial: Partial) -> None:
    bleus = {name: _int8_bleu(job, path) for name, path in candidates(job).items()}
    best = max(bleus, key=lambda name: bleus[name])  # of equal ones the first
    for name, bleu in bleus.items():
        ships = ", and ships" if name == best else ""
        logs.info(f"BLEU of the validation text in int8: {name} {bleu:.2f}{ships}.")
    model = verified(candidates(job)[best])
    recipe = (model.path / RECIPE).read_bytes()
    save_model(partial, model.settings, recipe, model.tokenizer, model.weights, "int8")
    if job.config.shortlist:
        shutil.copyfile(job.folder(LEXICON) / LEXICON, partial.path / LEXICON)
        partial.manifest[USES_SHORTLIST] = True
    averaged = model.manifest["averaged"]
    partial.manifest.update(averaged=averaged, shipped=best, validation_bleu_in_int8=bleus)


def _int8_bleu(job: Distillation, model: Path) -> float:
    """Return the BLEU of a model in int8 on the validation set that decides."""
    recipe = job.student.recipe
    files = recipe.validation.deciding(recipe.data.validation_sets)
    with TemporaryDirectory() as name:
        source, target, output = (Path(name) / part for part in ("source", "target", "output"))
        write_sides(files, recipe.data, source, target)
        scores = scores_on_cpu(
            job, model, (source, target), output, tag=files.tag, precision="int8"
        )
    bleu: float = scores["bleu"]["score"]
    return bleu


def _if_not_diverged(average: PipelineStage) -> PipelineStage:
    """Return the stage ``average``, which fails if the training before it diverged."""

    def is_made(student: Experiment) -> bool:
        _refuse_diverged(student)
        return average.is_made(student)

    def make(student: Experiment, is_forced: bool) -> None:
        _refuse_diverged(student)
        average.make(student, is_forced)

    return replace(average, is_made=is_made, make=make)


def _refuse_diverged(student: Experiment) -> None:
    if reason := why_diverged(student):
        from nmt_cli.training.training import advice_after_divergence  # imports torch

        advice = advice_after_divergence(student.recipe.training, "Give --force-from train")
        raise UserError(
            f"the training in {student.run_dir} diverged: {reason}. Nothing ships. {advice}"
        )


def stages_of_distil(job: Distillation) -> list[PipelineStage]:
    """Return the stages of ``distil``; those of the training are ``run``'s, by another recipe."""
    of_run = {stage.name: stage for stage in stages_of_run(job.student)}
    no_lexicon = None if job.config.shortlist else "distillation.shortlist is false."
    no_rounding = None if job.config.int8_steps else "distillation.int8_steps is 0."
    lexicon, table = job.folder(LEXICON), job.folder(STUDENT_TABLE)
    return [
        *stages_of_teaching(job),
        of_run["preprocess"],
        folder_stage(job, "lexicon", lexicon, DISTILLED, _lexicon_from, _make_lexicon, no_lexicon),
        of_run["train"],
        _if_not_diverged(of_run["average"]),
        PipelineStage("round", job, _is_quantized, _quantize, no_rounding, is_optional=True),
        folder_stage(job, "ship", job.shipped, AVERAGED, shipped_from, _ship),
        folder_stage(job, "measure", table, DISTILLED, measured_from, measure),
        of_run["report"],
    ]


def run(
    teachers: Sequence[Path] | TeacherServer,
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

    ``teachers`` are a model, an ensemble, or the server of a language model. The keywords are
    fields of ``TrainOptions``. A stage is skipped if its result was made from the present inputs
    and settings; one that was interrupted goes on. Raises UserError, which names the stage that
    failed, and InterruptedTrainingError.
    """
    wanted = wanted_stages(STAGES_OF_DISTIL, until, force_from)
    arguments = keywords.pop("arguments", ())  # of the command line, for advice
    options = TrainOptions(**keywords)
    file = read_recipe(recipe_name, options.overrides)
    server = teachers if isinstance(teachers, TeacherServer) else None
    models = [] if isinstance(teachers, TeacherServer) else teachers
    job = Distillation(models, reverse_model, file, options, taught, arguments, server)
    refuse_foreign(replaced_by_run(job.run_dir), "run")
    refuse_foreign(job.replaced, "distil")
    if reverse_model is not None:
        find_model(reverse_model)
    job.refuse_unfit()
    if file.recipe.data.test is not None:
        refuse_wrong_test(file)
    goes_on = "train" in wanted and force_from not in wanted[: wanted.index("train") + 1]
    if goes_on and list_checkpoints(job.run_dir):  # before the teacher translates
        remedy = "--run-dir, or give --force-from train to train anew"
        refuse_changes(job.run_dir, job.student.recipe, [ChangeKind.FORBIDDEN], remedy)
    anew = "--force-from train makes it anew"
    stages = [stage for stage in stages_of_distil(job) if stage.name in wanted]
    take_through(stages, force_from, anew)
    if "ship" in wanted:
        logs.info(f"The student is {job.shipped}.")
    if "measure" in wanted:
        name = FIGURES_FILE if output_format == "json" else TABLE
        StandardOutput().write((job.folder(STUDENT_TABLE) / name).read_bytes())
