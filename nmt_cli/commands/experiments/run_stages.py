"""The stages of an experiment: when a result is up to date, and how it is made.

preprocess  prepared/NAME        up to date if made from the recipe's text with its settings
train       runs/NAME            if the recipe's last step is reached
average     runs/NAME/average    if made from the last checkpoints
translate   runs/NAME/test       if made with this average and these settings from this text
score       runs/NAME/scores     if made from this translation and this reference
report      runs/NAME/report     if made from these figures
"""

import importlib.util
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from nmt_cli.commands import preprocess, report, train, translate
from nmt_cli.commands.experiments.pipeline import PipelineStage, folder_stage, was_made_from
from nmt_cli.corpus.prepared import is_up_to_date, trained_on
from nmt_cli.corpus.references import references_of
from nmt_cli.corpus.text.recipe_text import write_sides
from nmt_cli.files.atomic_files import Partial, read_manifest, sha256, verify
from nmt_cli.files.file_names import (
    AVERAGE,
    RECIPE,
    SCORES,
    SCORES_FILE,
    SETS,
    TEST,
    TRAINING_STATE,
    WEIGHTS,
)
from nmt_cli.files.folders import AVERAGED, REPORT, SCORED, TRANSLATION
from nmt_cli.files.lines import texts_of
from nmt_cli.messages import logs
from nmt_cli.messages.errors import DamagedError, UserError
from nmt_cli.messages.extras import not_installed
from nmt_cli.metrics.bleu import PAPER_PAIRS, bleu_scorer, chrf_scorer, paper_bleu_scorer
from nmt_cli.metrics.scorer import NAMES, Scorer
from nmt_cli.metrics.tokenization import TOKENIZATION
from nmt_cli.parsing.parseval import score_trees
from nmt_cli.recipe.sections.corpora import HeldOutFiles
from nmt_cli.saved.checkpoints import list_checkpoints, to_average
from nmt_cli.saved.metrics_log import logged_validations
from nmt_cli.saved.run_directory import is_trained_by, record_changes, remove_run
from nmt_cli.training.experiment import Experiment

LEAST_BLEU = 0.005  # what is less is shown as 0.00
YOUNG_BLEU = 1.0  # a model that never had as much has only learned what is frequent
ANY_FILE = ""  # what the name of each file begins with


def _is_prepared(experiment: Experiment) -> bool:
    return is_up_to_date(experiment.prepared, experiment.recipe)


def _preprocess(experiment: Experiment, _: bool) -> None:
    preprocess.run(
        recipe=experiment.recipe_name,
        overrides=experiment.options.overrides,
        output=experiment.prepared,
        workers=experiment.options.workers,
        force=True,
    )


def _is_trained(experiment: Experiment) -> bool:
    checkpoints = list_checkpoints(experiment.run_dir)
    try:
        last = verify(checkpoints[-1].path, [TRAINING_STATE], ANY_FILE) if checkpoints else None
    except DamagedError:
        return False
    if last is None or not is_trained_by(experiment.recipe, experiment.run_dir):
        return False
    text = last.get("prepared_files", {})
    if trained_on(text) != trained_on(read_manifest(experiment.prepared)["files"]):
        return False
    record_changes(experiment.run_dir, experiment.recipe)  # what is done is done by this recipe
    return True


def why_diverged(experiment: Experiment) -> str | None:
    """Return why the training counts as diverged by its validations; None if it does not."""
    records, checkpoints = (
        logged_validations(experiment.run_dir),
        list_checkpoints(experiment.run_dir),
    )
    if not records or not checkpoints:
        return None
    first, *others = (record["validation"] for record in records)
    last = others[-1] if others else first
    if (found := records[-1].get("divergence")) is not None:
        return str(found)
    if last.get("loss") is None:
        return "the validation loss is not finite"
    losses = [record["validation"].get("loss") for record in records]
    bleus = [bleu for each in (first, *others) if (bleu := each.get("bleu")) is not None]
    is_young = max(bleus, default=0.0) < YOUNG_BLEU and last["loss"] == min(filter(None, losses))
    if last.get("bleu") is not None and last["bleu"] < LEAST_BLEU and not is_young:
        return "the BLEU of the last validation is 0.00"
    # What begins from a trained model may be the best at its first validation.
    begins_anew = checkpoints[-1].manifest.get("initialized_from") is None
    if others and begins_anew and not any(map(partial(_is_better, first), others)):
        return f"no validation was better than the first, of step {records[0]['step']:,}"
    return None


def _is_better(first: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether a validation has a lower loss or a higher BLEU than the ``first``."""
    pairs = ((other.get("loss"), first.get("loss")), (first.get("bleu"), other.get("bleu")))
    return any(low is not None and high is not None and low < high for low, high in pairs)


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
    chosen = to_average(list_checkpoints(experiment.run_dir), experiment.recipe).chosen
    weights = [each.manifest["files"][WEIGHTS]["sha256"] for each in chosen]
    return was_made_from(
        experiment.run_dir / AVERAGE,
        weights,
        lambda made: [entry["sha256"] for entry in made.get("averaged", ())],
    )


def _average(experiment: Experiment, _: bool) -> None:
    from nmt_cli.commands import average_checkpoints  # imports torch

    found = to_average(list_checkpoints(experiment.run_dir), experiment.recipe)
    num_found, wanted = len(found.available), experiment.recipe.checkpoints.keep_for_average
    if 0 < num_found < wanted:
        logs.warning(f"{experiment.run_dir} has only {num_found} of {wanted} checkpoints.")
    average_checkpoints.run(experiment.run_dir, last=len(found.chosen) or None, force=True)
    if remark := found.remark(experiment.run_dir):
        logs.info(remark)


def _translate(experiment: Experiment, partial: Partial) -> None:
    recipe, options = experiment.recipe, experiment.options
    for test in recipe.data.test_sets:
        source = experiment.source(test)
        if source.parent == experiment.translations:  # they appear together
            source = partial.path / source.name
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

    def inputs_of(test: HeldOutFiles) -> dict[str, Any]:
        key, path = next(iter(test.paths.items()))
        inputs: dict[str, Any] = {key: sha256(path)}
        files = test.with_languages(experiment.recipe.data.languages)
        if files.columns is not None:
            inputs["columns"] = list(files.columns)
        if files.inline_tags is not None:
            inputs["inline_tags"] = files.inline_tags
        if test.tag is not None:
            inputs["tag"] = test.tag
        if treebank is not None:  # sentences and gold trees depend on them, too
            inputs["trees"] = sha256(test.text_files[1])
            inputs["treebank"] = treebank.model_dump(mode="json")
        return inputs

    files = read_manifest(experiment.run_dir / AVERAGE)["files"]
    return {
        "model": {name: entry["sha256"] for name, entry in files.items() if name != RECIPE},
        **experiment.of_tests(inputs_of),
        "decoding": experiment.recipe.decoding.model_dump(mode="json"),
        "precision": experiment.options.precision,
    }


def _figures_of(experiment: Experiment, test: HeldOutFiles) -> dict[str, Any]:
    """Return the scores of a test set by the names of their metrics."""
    hypotheses = texts_of(experiment.translation(test))
    figures: dict[str, Any] = {"lines": len(hypotheses)}
    gold = texts_of(experiment.reference(test))
    if experiment.recipe.data.treebank is not None:
        return {**figures, "parseval": score_trees(hypotheses, gold)._asdict()}
    references = references_of(experiment.recipe, gold)
    tokenize, remark = references.tokenizer
    if remark is not None:
        logs.warning(f"{experiment.reference(test)}: BLEU takes the tokenizer {tokenize}: {remark}")
    scorers: list[Scorer] = [bleu_scorer(tokenize), chrf_scorer()]
    pair = "-".join(experiment.recipe.data.languages_of(test))
    if pair in PAPER_PAIRS and tokenize != "none":  # the paper's BLEU is of plain text
        scorers.append(paper_bleu_scorer(*PAPER_PAIRS[pair]))
    for scorer in scorers:
        figures[scorer.key] = scorer.score(hypotheses, [references.lines]).figures()
    return figures


def _scored_from(experiment: Experiment) -> dict[str, Any]:
    """Return what the scores depend on."""

    def inputs_of(test: HeldOutFiles) -> dict[str, Any]:
        inputs = {
            "translation": sha256(experiment.translation(test)),
            "reference": sha256(experiment.reference(test)),
        }
        recipe = experiment.recipe
        if recipe.data.treebank is None:
            references = references_of(recipe, texts_of(experiment.reference(test)))
            tokenize = references.tokenizer.tokenize
            # Runs that were scored with 13a before it was recorded are not scored again.
            if tokenize != TOKENIZATION or recipe.validation.tokenize is not None:
                inputs["tokenize"] = tokenize
        return inputs

    return experiment.of_tests(inputs_of)


def _score(experiment: Experiment, partial: Partial) -> None:
    figures = experiment.of_tests(lambda test: _figures_of(experiment, test))
    (partial.path / SCORES_FILE).write_text(json.dumps(figures, indent=2), encoding="utf-8")
    averaged = read_manifest(experiment.run_dir / AVERAGE)["averaged"]
    partial.manifest["step"] = max(checkpoint["step"] for checkpoint in averaged)


def _is_reported(experiment: Experiment) -> bool:
    folder = experiment.run_dir / REPORT
    return was_made_from(folder, report.drawn_from([experiment.run_dir]))


def _report(experiment: Experiment, _: bool) -> None:
    report.run([experiment.run_dir], force=True)


def stages_of_run(run: Experiment) -> list[PipelineStage]:
    """Return the stages of ``run``."""
    no_test = None if run.recipe.data.test is not None else "the recipe has no data.test."
    has_matplotlib = importlib.util.find_spec("matplotlib") is not None
    no_report = None if has_matplotlib else f"report draws with {not_installed('matplotlib')}"
    test, scores = (run.translations, TRANSLATION), (run.scores, SCORED)
    return [
        PipelineStage("preprocess", run, _is_prepared, _preprocess),
        PipelineStage("train", run, _is_trained, _train),
        PipelineStage("average", run, _is_averaged, _average),
        folder_stage(run, "translate", *test, _translated_from, _translate, no_test),
        folder_stage(run, "score", *scores, _scored_from, _score, no_test),
        PipelineStage("report", run, _is_reported, _report, no_report),
    ]


def replaced_by_run(run_dir: Path) -> dict[Path, str]:
    """Return the kind of each folder that a stage of ``run`` replaces."""
    kinds = {AVERAGE: AVERAGED, TEST: TRANSLATION, SCORES: SCORED, REPORT: REPORT}
    return {run_dir / name: kind for name, kind in kinds.items()}


def result_lines(experiment: Experiment) -> list[str]:
    """Return the scores of each test set, or where the model is if there is no test set."""
    name, tests = experiment.file.name, experiment.recipe.data.test_sets
    if not tests:
        return [f"{name}: {experiment.run_dir / AVERAGE}"]
    scores = json.loads((experiment.scores / SCORES_FILE).read_text(encoding="utf-8"))
    if tests[0].name is None:
        return [f"{name}: {_in_words(scores)}"]
    return [f"{name}, {of_set}: {_in_words(figures)}" for of_set, figures in scores[SETS].items()]


def _in_words(figures: dict[str, Any]) -> str:
    if (parseval := figures.get("parseval")) is not None:
        return (
            f"F1 {parseval['f1']:.2f} (PARSEVAL; "
            f"recall {parseval['recall']:.2f}, precision {parseval['precision']:.2f}), "
            f"complete {parseval['complete_match']:.2f}, {figures['lines']:,} trees"
        )
    scores = (
        f"{NAMES[key]} {score['score']:.2f} ({score['signature']})"
        for key, score in figures.items()
        if key in NAMES
    )
    return f"{', '.join(scores)}, {figures['lines']:,} lines"
