"""The page of a report: one HTML file that needs neither other files nor a network."""

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from nmt_cli.messages.figures import short_number, time_text
from nmt_cli.recipe.keys import changed_keys
from nmt_cli.recipe.reading.recipe_files import dump_recipe
from nmt_cli.recipe.schema import Recipe
from nmt_cli.report import frame
from nmt_cli.report.charts import Chart, style_of
from nmt_cli.report.run_history import Floats, RunHistory, StepFigures, sets_to_show

LONGEST_VALUE = 200
MANY = 4  # from this number of runs on, the title does not name them
CSS_DASHES = {"-": "solid", "--": "dashed", ":": "dotted", "-.": "double"}


def as_html(runs: Sequence[RunHistory], charts: Mapping[Chart, bytes]) -> str:
    """Return the page: a table of the runs, the charts and the differences of their recipes."""
    names = ", ".join(run.label for run in runs) if len(runs) < MANY else f"{len(runs)} runs"
    sets, tests = sets_to_show(runs), dict.fromkeys(name for run in runs for name in run.test_sets)
    cells = [_cells(run, sets, tests) for run in runs]
    parts = [
        frame.section(
            "Figures", _table(runs, {name: [of_run[name] for of_run in cells] for name in cells[0]})
        ),
        *[_student_table(run) for run in runs if run.student_table],
        frame.columns(
            frame.section(chart.title, _image(chart, png)) for chart, png in charts.items()
        ),
        *_differences(runs),
        *[_recipe(run) for run in runs if run.recipe is not None],
    ]
    return frame.page(f"Training of {names}", parts)


def _table(runs: Sequence[RunHistory], rows: Mapping[str, Sequence[str]]) -> str:
    """Return a table with one column per run; rows without any value are left out."""
    return frame.table(
        ["", *(run.label for run in runs)],
        [
            [name, *(value or "–" for value in values)]
            for name, values in rows.items()
            if any(values)
        ],
        [_swatch(index) for index in range(len(runs))] if len(runs) > 1 else (),
    )


def _student_table(run: RunHistory) -> str:
    """Return the table of a student and its teacher."""
    assert run.student_table is not None
    (headings, *rows), notes = run.student_table
    return frame.section(
        f"{run.label} and its teacher", frame.table(headings, rows), *map(frame.note, notes)
    )


def _swatch(index: int) -> str:
    colour, dashes = style_of(index)
    style = f"border-top-style: {CSS_DASHES[dashes]}; border-color: {colour}"
    return f'<span class="line" style="{style}"></span>'


def _image(chart: Chart, png: bytes) -> str:
    data = base64.b64encode(png).decode()
    return f'<img alt="{escape(chart.title)}" src="data:image/png;base64,{data}">'


def _differences(runs: Sequence[RunHistory]) -> list[str]:
    recipes = [run.recipe for run in runs if run.recipe is not None]
    if len(recipes) < 2:
        return []
    rows = {}
    for key, values in differing_keys(recipes).items():
        of_known = iter(values)
        rows[key] = ["" if run.recipe is None else _shown(next(of_known)) for run in runs]
    return [
        frame.section(
            "What the recipes differ in", _table(runs, rows) if rows else frame.note("Nothing.")
        )
    ]


def differing_keys(recipes: Sequence[Recipe]) -> dict[str, list[Any]]:
    """Return the keys that are not the same in all ``recipes``, with the value of each recipe."""
    changes = [{c.key: c for c in changed_keys(recipes[0], recipe)} for recipe in recipes]
    of_first = {key: change.old for of_one in changes for key, change in of_one.items()}
    return {
        key: [of_one[key].new if key in of_one else value for of_one in changes]
        for key, value in of_first.items()
    }


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


def _recipe(run: RunHistory) -> str:
    assert run.recipe is not None
    return frame.folded(f"Recipe of {run.label}", frame.code(dump_recipe(run.recipe)))


def _cells(run: RunHistory, sets: Sequence[str | None], tests: Iterable[str]) -> dict[str, str]:
    """Return the cells of a run by the names of their rows; empty if it does not have one.

    ``sets`` are the validation sets to show, ``tests`` the test sets that have names.
    """
    seconds, tokens, waited = (
        float(np.nansum(run.training.column(name)))
        for name in ("seconds", "target_tokens", "data_wait_seconds")
    )
    utilization = run.training.column("flop_utilization")
    stages = [f"stage {number} at step {step:,.0f}" for number, step in run.stage_starts().items()]
    cells = {
        "steps": _steps(run),
        "target tokens": f"{tokens:,.0f}",
        "stages begin": ", ".join(stages),
        "time in steps": time_text(seconds),
        "target tokens per second": f"{tokens / seconds:,.0f}" if seconds else "",
        "waiting for data": f"{waited / seconds:.1%}" if seconds else "",
        "model FLOP utilization": f"{np.nanmedian(utilization):.1%}"
        if np.isfinite(utilization).any()
        else "",
    }
    for name in sets:
        on, figures = f" of {name}" if name is not None else "", run.validated(name)
        cells[f"best validation loss{on}"] = _best(figures, "loss", 4)
        cells[f"best validation perplexity{on}"] = _best(figures, "perplexity", 3)
        cells[f"best validation BLEU{on}"] = _best(figures, "bleu", 2, np.nanargmax)
        cells[f"best validation F1{on}"] = _best(figures, "parseval", 2, np.nanargmax)
        cells[f"best number of --validation-script{on}"] = _best(figures, "script", 4, np.nanargmax)
    for text, scores in [
        ("the test text", run.scores),
        *((f"the test set {name}", run.test_sets.get(name, {})) for name in tests),
    ]:
        cells[f"BLEU of {text}"] = _score(scores, "bleu")
        cells[f"chrF2 of {text}"] = _score(scores, "chrf")
        cells[f"F1 of {text}"] = _score(scores, "parseval", "f1")
    cells["parameters"] = "" if run.num_parameters is None else f"{run.num_parameters:,}"
    cells["device"] = "; ".join(dict.fromkeys(map(_machine, run.sessions)))
    cells["starts"] = f"{len(run.sessions):,}" if len(run.sessions) > 1 else ""
    return cells


def _steps(run: RunHistory) -> str:
    last = max([*run.training.steps, *run.validation.steps])
    wanted = run.recipe.training.max_steps if run.recipe is not None else None
    return f"{last:,.0f}" if wanted is None else f"{last:,.0f} of {wanted:,}"


def _best(
    figures: StepFigures,
    name: str,
    digits: int,
    place_of: Callable[[Floats], np.intp] = np.nanargmin,
) -> str:
    values = figures.column(name)
    if not np.isfinite(values).any():
        return ""
    at = place_of(values)
    return f"{short_number(values[at], digits)} (step {figures.steps[at]:,.0f})"


def _score(scores: Mapping[str, Any], metric: str, figure: str = "score") -> str:
    figures = scores.get(metric)
    return short_number(figures[figure], 2) if isinstance(figures, dict) else ""


def _machine(session: Mapping[str, Any]) -> str:
    ranks = session.get("ranks", 1)
    times = f"{ranks} x " if ranks != 1 else ""
    return f"{times}{session.get('device', '?')}, {session.get('precision', '?')}"
