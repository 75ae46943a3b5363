"""The stages of an experiment: when a result is up to date, and how it is made.

preprocess  prepared/NAME        up to date if made from the recipe's text with its settings
train       runs/NAME            if the recipe's last step is reached
average     runs/NAME/average    if made from the last checkpoints
translate   runs/NAME/test       if made with this average and these settings from this text
score       runs/NAME/scores     if made from this translation and this reference
report      runs/NAME/report     if younger than all it shows
"""

import importlib.util
import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from nmt_cli.checkpoints import Checkpoint, list_checkpoints
from nmt_cli.commands import preprocess, report, train, translate
from nmt_cli.commands.experiments.experiment import Experiment, name_of
from nmt_cli.commands.experiments.scoring import figures_of, scored_from
from nmt_cli.commands.experiments.stages import Stage, stage_of_folder
from nmt_cli.corpus.changed_text import changed_text, trained_on
from nmt_cli.corpus.prepared import refuse_stale
from nmt_cli.corpus.text.recipe_text import write_sides
from nmt_cli.files.atomic_files import Partial, read_manifest, sha256, verify
from nmt_cli.files.file_names import (
    AVERAGE,
    MANIFEST,
    METRICS,
    RECIPE,
    SCORES_FILE,
    TRAINING_STATE,
    WEIGHTS,
)
from nmt_cli.files.folders import REPORT, SCORED, TRANSLATION
from nmt_cli.launch.run_status import read_status
from nmt_cli.messages import logs
from nmt_cli.messages.errors import DamagedError, UserError
from nmt_cli.messages.extras import not_installed
from nmt_cli.recipe.changes import needs_training
from nmt_cli.recipe.corpora_config import ParallelFiles
from nmt_cli.recipe.reader import read_recipe
from nmt_cli.runs.run_directory import record_changes, remove_run

ANY_FILE = ""  # what the name of each file begins with


def _is_prepared(experiment: Experiment) -> bool:
    try:
        manifest = verify(experiment.prepared, unread_prefix=ANY_FILE)
        refuse_stale(experiment.prepared, manifest, experiment.recipe, "")
    except UserError:
        return False
    return not changed_text(experiment.prepared, manifest)


def _preprocess(experiment: Experiment, _: bool) -> None:
    preprocess.run(
        recipe=experiment.recipe_name,
        overrides=experiment.options.overrides,
        output=experiment.prepared,
        workers=experiment.options.workers,
        force=True,
    )


def _is_trained(experiment: Experiment) -> bool:
    status, checkpoints = read_status(experiment.run_dir), list_checkpoints(experiment.run_dir)
    if status is None or status.state != "finished" or not checkpoints:
        return False
    if _manifest(checkpoints[-1].path, unneeded=[TRAINING_STATE]) is None:
        return False
    before = read_recipe(str(experiment.run_dir / RECIPE)).recipe
    text = checkpoints[-1].manifest.get("prepared_files", {})
    has_same_text = trained_on(text) == trained_on(read_manifest(experiment.prepared)["files"])
    if not has_same_text or needs_training(before, experiment.recipe):
        return False
    record_changes(experiment.run_dir, experiment.recipe)  # what is done is done by this recipe
    return True


def _train(experiment: Experiment, is_forced: bool) -> None:
    if is_forced and experiment.run_dir.exists():
        remove_run(experiment.run_dir)
    is_begun = bool(list_checkpoints(experiment.run_dir))
    options = replace(
        experiment.options,
        prepared=experiment.prepared,
        run_dir=experiment.run_dir,
        resume=is_begun,
        init_from=None if is_begun else experiment.options.init_from,
        in_run=True,
    )
    train.run(experiment.recipe_name, **vars(options))


def _is_averaged(experiment: Experiment) -> bool:
    made = _manifest(experiment.run_dir / AVERAGE)
    if made is None:
        return False
    averaged = [entry["sha256"] for entry in made.get("averaged", ())]
    return averaged == [
        checkpoint.manifest["files"][WEIGHTS]["sha256"] for checkpoint in _to_average(experiment)
    ]


def _average(experiment: Experiment, _: bool) -> None:
    from nmt_cli.commands import average_checkpoints  # imports torch

    wanted, chosen = experiment.recipe.checkpoints.keep_for_average, _to_average(experiment)
    if chosen and len(chosen) < wanted:
        logs.warning(f"{experiment.run_dir} has only {len(chosen)} of {wanted} checkpoints.")
    average_checkpoints.run(experiment.run_dir, last=len(chosen) or None, force=True)


def _to_average(experiment: Experiment) -> list[Checkpoint]:
    available = [c for c in list_checkpoints(experiment.run_dir) if c.enters_average]
    return available[-experiment.recipe.checkpoints.keep_for_average :]


def _translate(experiment: Experiment, partial: Partial) -> None:
    recipe, options = experiment.recipe, experiment.options
    for test in recipe.data.test_sets:
        if recipe.data.treebank is None and test.rows is None:
            source = test.text_files[0]
        else:
            source = partial.path / name_of("sentences", test, "txt")
            write_sides(test, recipe.data, source, partial.path / experiment.reference(test).name)
        status = translate.run(
            experiment.run_dir / AVERAGE,
            input_path=source,
            output_path=partial.path / experiment.translation(test).name,
            tag=test.tag,
            device=options.device,
            threads=options.threads,
            precision=options.precision,
            **recipe.decoding.model_dump(),
        )
        if status:
            raise UserError(
                f"lines of {test} could not be translated; the warnings above name them."
            )


def _translated_from(experiment: Experiment) -> dict[str, Any]:
    """Return what the translations of the test sets depend on."""
    treebank = experiment.recipe.data.treebank

    def facts_of(test: ParallelFiles) -> dict[str, Any]:
        key, path = next(iter(test.paths.items()))
        facts: dict[str, Any] = {key: sha256(path)}
        test = test.with_languages(experiment.recipe.data.languages)
        if test.columns is not None:
            facts["columns"] = list(test.columns)
        if test.inline_tags is not None:
            facts["inline_tags"] = test.inline_tags
        if test.tag is not None:
            facts["tag"] = test.tag
        if treebank is None:
            return facts
        # Sentences and gold trees depend on them, too.
        trees = {"trees": sha256(test.text_files[1]), "treebank": treebank.model_dump(mode="json")}
        return {**facts, **trees}

    files = read_manifest(experiment.run_dir / AVERAGE)["files"]
    return {
        "model": {name: entry["sha256"] for name, entry in files.items() if name != RECIPE},
        **experiment.of_tests(facts_of),
        "decoding": experiment.recipe.decoding.model_dump(mode="json"),
        "precision": experiment.options.precision,
    }


def _score(experiment: Experiment, partial: Partial) -> None:
    figures = experiment.of_tests(lambda test: figures_of(experiment, test))
    (partial.path / SCORES_FILE).write_text(json.dumps(figures, indent=2), encoding="utf-8")
    averaged = read_manifest(experiment.run_dir / AVERAGE)["averaged"]
    partial.facts["step"] = max(checkpoint["step"] for checkpoint in averaged)


def _is_reported(experiment: Experiment) -> bool:
    own = experiment.run_dir / REPORT / MANIFEST
    metrics, scores = experiment.run_dir / METRICS, experiment.scores / MANIFEST
    if _manifest(own.parent) is None or not metrics.exists():
        return False
    times = [path.stat().st_mtime_ns for path in (metrics, scores) if path.exists()]
    return own.stat().st_mtime_ns >= max(times)


def _without_test(experiment: Experiment) -> str | None:
    return None if experiment.recipe.data.test is not None else "the recipe has no data.test."


def _without_matplotlib(_: Experiment) -> str | None:
    if importlib.util.find_spec("matplotlib") is not None:
        return None
    return f"report draws with {not_installed('report')}"


STAGES: dict[str, Stage[Experiment]] = {
    "preprocess": Stage(_is_prepared, _preprocess),
    "train": Stage(_is_trained, _train),
    "average": Stage(_is_averaged, _average),
    "translate": stage_of_folder(
        lambda each: each.translations,
        _translated_from,
        _translate,
        _without_test,
        kind=TRANSLATION,
    ),
    "score": stage_of_folder(
        lambda each: each.scores, scored_from, _score, _without_test, kind=SCORED
    ),
    "report": Stage(
        _is_reported, lambda each, _: report.run([each.run_dir], force=True), _without_matplotlib
    ),
}


def _manifest(folder: Path, unneeded: Collection[str] = ()) -> dict[str, Any] | None:
    """Return the manifest of ``folder``; None if it is damaged, or a file is missing or cut short.

    The bytes of the files are not read, and those that are ``unneeded`` may be missing.
    """
    try:
        return verify(folder, unneeded, unread_prefix=ANY_FILE)
    except DamagedError:
        return None
