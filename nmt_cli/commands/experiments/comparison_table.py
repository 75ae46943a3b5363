"""The table of ``nmt-cli compare``: the figures of each recipe beside those of the paper."""

import math
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any, NamedTuple

import numpy as np

from nmt_cli.commands.scoring.system_comparison import Comparison, NamedText
from nmt_cli.corpus.references import references_of
from nmt_cli.files.lines import texts_of
from nmt_cli.messages.figures import aligned, time_text
from nmt_cli.messages.figures import short_number as number
from nmt_cli.metrics.bleu import bleu_scorer
from nmt_cli.metrics.scorer import Resampling
from nmt_cli.report.run_history import RunHistory, StepFigures
from nmt_cli.training.experiment import Experiment


class PaperRow(NamedTuple):
    """A row of the table, measured on newstest2013 without averaging checkpoints."""

    perplexity: float  # per piece
    bleu: float
    parameters: int | None = None  # millions; None where the paper leaves out the base model's


ROWS = {
    "base": PaperRow(4.92, 25.8, 65),
    "a-1-head": PaperRow(5.29, 24.9),
    "a-4-heads": PaperRow(5.00, 25.5),
    "a-16-heads": PaperRow(4.91, 25.8),
    "a-32-heads": PaperRow(5.01, 25.4),
    "b-dk-16": PaperRow(5.16, 25.1, 58),
    "b-dk-32": PaperRow(5.01, 25.4, 60),
    "c-2-layers": PaperRow(6.11, 23.7, 36),
    "c-4-layers": PaperRow(5.19, 25.3, 50),
    "c-8-layers": PaperRow(4.88, 25.5, 80),
    "c-d-model-256": PaperRow(5.75, 24.5, 28),
    "c-d-model-1024": PaperRow(4.66, 26.0, 168),
    "c-d-ff-1024": PaperRow(5.12, 25.4, 53),
    "c-d-ff-4096": PaperRow(4.75, 26.2, 90),
    "d-dropout-0.0": PaperRow(5.77, 24.6),
    "d-dropout-0.2": PaperRow(4.95, 25.5),
    "d-label-smoothing-0.0": PaperRow(4.67, 25.3),
    "d-label-smoothing-0.2": PaperRow(5.47, 25.7),
    "e-learned-positions": PaperRow(4.92, 25.7),
    "big": PaperRow(4.33, 26.4, 213),
}


def row_of(recipe_name: str) -> PaperRow | None:
    """Return the paper's figures for a recipe; None if its name is not that of a row.

    Only the last part of the name counts, without "-scaled": a folder of small recipes may have the
    same rows, with values changed in the same proportion.
    """
    return ROWS.get(recipe_name.rpartition("/")[2].removesuffix("-scaled"))


OURS = (
    "Our perplexity is per piece, of the validation text at the last step. Our BLEU (sacreBLEU) "
    "or F1 (PARSEVAL) is that of the test text, translated by the average."
)
OF_TIME = "The time is that of the steps, and tokens/s the target tokens of one of its seconds."
OF_SETS = "A column with the name of a test set holds its BLEU or F1."
OF_VALIDATION = "Columns in ppl are perplexities of the validation sets that do not decide."
PAPERS = "The paper's figures are those of its Table 3: of newstest2013, by the last checkpoint."
HEADINGS = (
    "recipe", "seeds", "10⁶ parameters", "paper", "perplexity", "paper", "BLEU", "paper", "F1",
    "time", "tokens/s",
)  # fmt: skip


class ComparedRow(NamedTuple):
    """One recipe: a figure of each of its runs."""

    name: str
    num_parameters: int
    perplexities: list[float]  # per piece, of the validation text at the last step
    bleus: list[float]  # sacreBLEU of the test text, by the average; empty without a test text
    f1s: list[float]  # PARSEVAL's, of test trees; empty without any
    paper: PaperRow | None
    test_sets: Mapping[str, list[float]] = {}  # such BLEU or F1 of each set that has a name
    signatures: tuple[str, ...] = ()  # the different ones of these BLEU
    seconds: Sequence[float] = ()  # in the steps of each run
    target_tokens: Sequence[float] = ()  # in these steps
    validation_sets: Mapping[str, list[float]] = {}  # perplexities of those that do not decide

    def as_json(self) -> dict[str, Any]:
        """Return the row for JSON."""
        row = {**self._asdict(), "paper": self.paper._asdict() if self.paper else None}
        for name in ("test_sets", "validation_sets"):
            if not row[name]:
                del row[name]
        return row


def as_rows(names: Sequence[str], histories: Sequence[RunHistory]) -> list[ComparedRow]:
    """Return a row for each name, in the order of their first runs."""
    runs: dict[str, list[RunHistory]] = {}
    for name, history in zip(names, histories, strict=True):
        runs.setdefault(name, []).append(history)
    return [_row(name, of_name) for name, of_name in runs.items()]


def _row(name: str, histories: Sequence[RunHistory]) -> ComparedRow:
    perplexities = [_last_perplexity(history.validation) for history in histories]
    others: dict[str, list[float]] = {}
    for history in histories:
        for of_set in history.validation_sets.keys() - {history.deciding_set}:
            others.setdefault(of_set, []).append(_last_perplexity(history.validated(of_set)))
    bleus, f1s = (
        [history.scores[metric][figure] for history in histories if metric in history.scores]
        for metric, figure in (("bleu", "score"), ("parseval", "f1"))
    )
    parameters = histories[0].num_parameters or 0
    tests: dict[str, list[float]] = {}
    scored = [of for history in histories for of in (history.scores, *history.test_sets.values())]
    signatures = dict.fromkeys(of["bleu"]["signature"] for of in scored if "bleu" in of)
    for of_set, scores in (item for history in histories for item in history.test_sets.items()):
        score = scores["parseval"]["f1"] if "parseval" in scores else scores["bleu"]["score"]
        tests.setdefault(of_set, []).append(score)
    seconds, tokens = (
        [float(np.nansum(history.training.column(column))) for history in histories]
        for column in ("seconds", "target_tokens")
    )
    paper = row_of(name)
    return ComparedRow(
        *(name, parameters, perplexities, bleus, f1s, paper, tests, tuple(signatures)),
        *(seconds, tokens, dict(sorted(others.items()))),
    )


def _last_perplexity(figures: StepFigures) -> float:
    values = figures.column("perplexity")
    return float([math.nan, *values[np.isfinite(values)]][-1])


def as_table(rows: Sequence[ComparedRow]) -> str:
    """Return the table without empty columns as text, and below it what its figures measure."""
    papers = [PAPERS] if any(row.paper is not None for row in rows) else []
    names = list(dict.fromkeys(name for row in rows for name in row.test_sets))
    others = list(dict.fromkeys(name for row in rows for name in row.validation_sets))
    cells = [
        (
            *_cells(row),
            *(_summary(row.validation_sets.get(name, [])) for name in others),
            *(_summary(row.test_sets.get(name, [])) for name in names),
        )
        for row in rows
    ]
    headings = (*HEADINGS, *(f"{name} ppl" for name in others), *names)
    columns = zip(headings, *cells, strict=True)
    table = zip(*(column for column in columns if any(column[1:])), strict=True)
    signatures = dict.fromkeys(signature for row in rows for signature in row.signatures)
    of_bleu = [f"The signature of BLEU is {' or '.join(signatures)}."] if signatures else []
    notes = [
        OURS,
        *of_bleu,
        *([OF_TIME] if any(row.seconds for row in rows) else []),
        *([OF_VALIDATION] if others else []),
        *([OF_SETS] if names else []),
        *papers,
    ]
    return "\n".join([*aligned(table), "", *notes])


def _cells(row: ComparedRow) -> tuple[str, ...]:
    paper = row.paper
    return (
        row.name,
        str(len(row.perplexities)),
        number(row.num_parameters / 1e6, 1 if row.num_parameters >= 1e6 else 3),
        "" if paper is None or paper.parameters is None else str(paper.parameters),
        _summary(row.perplexities),
        "" if paper is None else number(paper.perplexity, 2),
        _summary(row.bleus),
        "" if paper is None else number(paper.bleu, 1),
        _summary(row.f1s),
        time_text(mean(row.seconds)) if row.seconds else "",
        f"{sum(row.target_tokens) / sum(row.seconds):,.0f}" if any(row.seconds) else "",
    )


def _summary(values: Sequence[float]) -> str:
    """Return the mean of the runs, and their range if there are several."""
    if not values:
        return ""
    around = f" ({number(min(values), 2)} to {number(max(values), 2)})" if len(values) > 1 else ""
    return f"{number(mean(values), 2)}{around}"


def bleu_tests(runs: Sequence[Experiment]) -> dict[str, Comparison]:
    """Return for each test set whether BLEU of the runs differs from that of the first of them.

    Runs with other references are left out, and a set that only one of them has.
    """
    tests = {}
    of_runs = [{test.name: test for test in run.recipe.data.test_sets} for run in runs]
    for name in dict.fromkeys(name for of_run in of_runs for name in of_run):
        gold, systems = None, []
        for run, of_run in zip(runs, of_runs, strict=True):
            if name not in of_run or run.recipe.data.treebank is not None:
                continue
            lines = texts_of(run.reference(of_run[name]))
            references = references_of(run.recipe, lines)
            gold = gold or references
            if references == gold:
                translation = texts_of(run.translation(of_run[name]))
                systems.append(NamedText(str(run.run_dir), translation))
        if gold is not None and len(systems) > 1:
            scorers = [bleu_scorer(gold.tokenizer.tokenize)]
            resampling = Resampling.chosen(None, None, None)
            tests[name or "test"] = Comparison.of(systems, [gold.lines], scorers, resampling)
    return tests
