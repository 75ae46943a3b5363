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
    "Our perplexity is per piece, of the validation text at the last step. Our BLEU is sacreBLEU "
    "of the test text, translated by the average."
)
PAPERS = "The paper's figures are those of its Table 3: of newstest2013, by the last checkpoint."
HEADINGS = ("recipe", "seeds", "10⁶ parameters", "paper", "perplexity", "paper", "BLEU", "paper")


class ComparedRow(NamedTuple):
    """One recipe: a figure of each of its runs."""

    name: str
    num_parameters: int
    perplexities: list[float]  # per piece, of the validation text at the last step
    bleus: list[float]  # sacreBLEU of the test text, by the average; empty without a test text
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
    bleus = [history.scores["bleu"]["score"] for history in histories if "bleu" in history.scores]
    perplexities = [_last_perplexity(history) for history in histories]
    return ComparedRow(name, histories[0].num_parameters or 0, perplexities, bleus, row_of(name))


def _last_perplexity(history: RunHistory) -> float:
    values = history.validation.column("perplexity")
    known = values[np.isfinite(values)]
    return float(known[-1]) if len(known) else float("nan")


def as_text(rows: Sequence[ComparedRow]) -> str:
    """Return the table as lines of text, and below it what its figures measure."""
    papers = [PAPERS] if any(row.paper is not None for row in rows) else []
    return "\n".join([*aligned([HEADINGS, *map(_cells, rows)]), "", OURS, *papers])


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
    )


def _summary(values: Sequence[float]) -> str:
    """Return the mean of the runs, and their range if there are several."""
    if not values:
        return ""
    around = f" ({number(min(values), 2)} to {number(max(values), 2)})" if len(values) > 1 else ""
    return f"{number(mean(values), 2)}{around}"
