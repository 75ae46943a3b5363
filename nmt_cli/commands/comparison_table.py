"""The table of ``compare``: our figures beside those of the paper's Table 3."""

from collections.abc import Sequence
from statistics import mean
from typing import Any, NamedTuple

import numpy as np

from nmt_cli.commands.text_table import aligned
from nmt_cli.figures import as_text as number
from nmt_cli.report.run_history import RunHistory
from nmt_cli.table_3 import PaperRow, row_of

OURS = (
    "Our perplexity is per piece, of the validation text at the last step. Our BLEU (sacreBLEU) "
    "or F1 (PARSEVAL) is that of the test text, translated by the average."
)
PAPERS = "The paper's figures are those of its Table 3: of newstest2013, by the last checkpoint."
HEADINGS = (
    "recipe", "seeds", "10⁶ parameters", "paper", "perplexity", "paper", "BLEU", "paper", "F1",
)  # fmt: skip


class ComparedRow(NamedTuple):
    """One recipe: a figure of each of its runs."""

    name: str
    num_parameters: int
    perplexities: list[float]  # per piece, of the validation text at the last step
    bleus: list[float]  # sacreBLEU of the test text, by the average; empty without a test text
    f1s: list[float]  # PARSEVAL's, of test trees; empty without any
    paper: PaperRow | None

    def facts(self) -> dict[str, Any]:
        """Return the row for JSON."""
        paper = self.paper._asdict() if self.paper is not None else None
        return {**self._asdict(), "paper": paper}


def as_rows(names: Sequence[str], histories: Sequence[RunHistory]) -> list[ComparedRow]:
    """Return a row for each name, in the order of their first runs."""
    runs: dict[str, list[RunHistory]] = {}
    for name, history in zip(names, histories, strict=True):
        runs.setdefault(name, []).append(history)
    return [_row(name, of_name) for name, of_name in runs.items()]


def _row(name: str, histories: Sequence[RunHistory]) -> ComparedRow:
    perplexities = [_last_perplexity(history) for history in histories]
    bleus, f1s = (
        [history.scores[metric][figure] for history in histories if metric in history.scores]
        for metric, figure in (("bleu", "score"), ("parseval", "f1"))
    )
    parameters = histories[0].num_parameters or 0
    return ComparedRow(name, parameters, perplexities, bleus, f1s, row_of(name))


def _last_perplexity(history: RunHistory) -> float:
    values = history.validation.column("perplexity")
    known = values[np.isfinite(values)]
    return float(known[-1]) if len(known) else float("nan")


def as_text(rows: Sequence[ComparedRow]) -> str:
    """Return the table without empty columns as text, and below it what its figures measure."""
    papers = [PAPERS] if any(row.paper is not None for row in rows) else []
    columns = zip(HEADINGS, *map(_cells, rows), strict=True)
    table = zip(*(column for column in columns if any(column[1:])), strict=True)
    return "\n".join([*aligned(table), "", OURS, *papers])


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
    )


def _summary(values: Sequence[float]) -> str:
    """Return the mean of the runs, and their range if there are several."""
    if not values:
        return ""
    around = f" ({number(min(values), 2)} to {number(max(values), 2)})" if len(values) > 1 else ""
    return f"{number(mean(values), 2)}{around}"
