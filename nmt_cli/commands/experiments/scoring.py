"""The scores of the translated test sets of an experiment, and what they depend on."""

import json
from typing import Any

from nmt_cli.commands.experiments.experiment import Experiment
from nmt_cli.corpus.references import References, references_of
from nmt_cli.files.atomic_files import sha256
from nmt_cli.files.file_names import AVERAGE, SCORES_FILE, SETS
from nmt_cli.files.lines import texts_of
from nmt_cli.messages import logs
from nmt_cli.metrics.bleu import PAPER_PAIRS, bleu_scorer, chrf_scorer, paper_bleu_scorer
from nmt_cli.metrics.scorer import NAMES, Scorer
from nmt_cli.metrics.tokenization import TOKENIZATION, Tokenization
from nmt_cli.parsing.parseval import score_trees
from nmt_cli.recipe.corpora_config import HeldOutFiles
from nmt_cli.recipe.schema import Recipe


def figures_of(experiment: Experiment, test: HeldOutFiles) -> dict[str, Any]:
    """Return the scores of a test set by the names of their metrics."""
    hypotheses = texts_of(experiment.translation(test))
    figures: dict[str, Any] = {"lines": len(hypotheses)}
    if experiment.recipe.data.treebank is not None:
        gold = texts_of(experiment.reference(test))
        return {**figures, "parseval": score_trees(hypotheses, gold)._asdict()}
    references = _references(experiment, test)
    tokenize, remark = references.tokenizer
    if remark is not None:
        logs.warning(f"{experiment.reference(test)}: BLEU takes the tokenizer {tokenize}: {remark}")
    for scorer in _scorers(experiment.recipe, tokenize):
        figures[scorer.key] = scorer.score(hypotheses, [references.lines]).figures()
    return figures


def _references(experiment: Experiment, test: HeldOutFiles) -> References:
    return references_of(experiment.recipe, texts_of(experiment.reference(test)))


def _scorers(recipe: Recipe, tokenize: Tokenization) -> list[Scorer]:
    """Return the metrics for the languages of ``recipe``.

    The paper's BLEU is of plain text, so text that is tokenized already has none.
    """
    pair = f"{recipe.data.source_language}-{recipe.data.target_language}"
    scorers: list[Scorer] = [bleu_scorer(tokenize), chrf_scorer()]
    if pair in PAPER_PAIRS and tokenize != "none":
        scorers.append(paper_bleu_scorer(PAPER_PAIRS[pair]))
    return scorers


def scored_from(experiment: Experiment) -> dict[str, Any]:
    """Return what the scores depend on."""

    def facts_of(test: HeldOutFiles) -> dict[str, Any]:
        facts = {
            "translation": sha256(experiment.translation(test)),
            "reference": sha256(experiment.reference(test)),
        }
        recipe = experiment.recipe
        if recipe.data.treebank is None:
            tokenize = _references(experiment, test).tokenizer.tokenize
            # Runs that were scored with 13a before it was recorded are not scored again.
            if tokenize != TOKENIZATION or recipe.validation.tokenize is not None:
                facts["tokenize"] = tokenize
        return facts

    return experiment.of_tests(facts_of)


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
