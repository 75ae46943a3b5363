"""The page of a report: one HTML file that needs neither other files nor a network."""

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np

from nmt_cli.messages.figures import short_number
from nmt_cli.recipe.changes import changed_keys
from nmt_cli.recipe.reader import dump_recipe
from nmt_cli.recipe.schema import Recipe
from nmt_cli.report.charts import Chart, style_of
from nmt_cli.report.run_history import RunHistory, sets_to_show

LONGEST_VALUE = 200
MANY = 4  # from this number of runs on, the title does not name them
CSS = """
body { font: 16px/1.4 system-ui, sans-serif; color: #222; background: #fff;
       max-width: 800px; margin: 1em auto; padding: 0 1em; }
h1 { font-size: 1.5em; } h2 { font-size: 1.2em; margin-top: 1.5em; }
img { width: 100%; height: auto; display: block; margin: 1em 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 14px; }
th, td { padding: .3em .7em; border-bottom: 1px solid #ddd; text-align: right;
         vertical-align: top; overflow-wrap: anywhere; }
tr > :first-child { text-align: left; font-weight: normal; }
thead th { border-bottom: 2px solid #222; min-width: 5em; }
.line { display: inline-block; width: 2.2em; border-top: 3px; margin: 0 .4em .25em 0; }
pre { font-size: 13px; background: #f5f5f5; padding: 1em; overflow-x: auto; }
"""
CSS_DASHES = {"-": "solid", "--": "dashed", ":": "dotted", "-.": "double"}


def as_html(runs: Sequence[RunHistory], charts: Mapping[Chart, bytes]) -> str:
    """Return the page: a table of the runs, the charts and the differences of their recipes."""
    names = ", ".join(run.label for run in runs) if len(runs) < MANY else f"{len(runs)} runs"
    parts = [
        "<!DOCTYPE html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(names)}</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<style>{CSS}</style></head><body>",
        f"<h1>Training of {escape(names)}</h1>",
        _table(runs, {row.name: [row.of(run) for run in runs] for row in _summary(runs)}),
        *[_image(chart, png) for chart, png in charts.items()],
        *_differences(runs),
        *[_recipe(run) for run in runs if run.recipe is not None],
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _table(runs: Sequence[RunHistory], rows: Mapping[str, Sequence[str]]) -> str:
    """Return a table with one column per run; rows without any value are left out."""
    lines = ['<div class="wide"><table><thead><tr><th></th>']
    for index, run in enumerate(runs):
        lines.append(f'<th scope="col">{_swatch(index)}{escape(run.label)}</th>')
    lines.append("</tr></thead><tbody>")
    for name, values in rows.items():
        if any(values):
            cells = "".join(f"<td>{escape(value or '–')}</td>" for value in values)
            lines.append(f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>')
    return "\n".join([*lines, "</tbody></table></div>"])


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
        "<h2>What the recipes differ in</h2>",
        _table(runs, rows) if rows else "<p>Nothing.</p>",
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
    text = escape(dump_recipe(run.recipe))
    return f"<details><summary>Recipe of {escape(run.label)}</summary><pre>{text}</pre></details>"


class Row(NamedTuple):
    """One fact of every run, as text; empty if a run does not have it."""

    name: str
    of: Callable[[RunHistory], str]


def _steps(run: RunHistory) -> str:
    last = max([*run.training.steps, *run.validation.steps])
    wanted = run.recipe.training.max_steps if run.recipe is not None else None
    return f"{last:,.0f}" if wanted is None else f"{last:,.0f} of {wanted:,}"


def _stages(run: RunHistory) -> str:
    starts = run.stage_starts()
    return ", ".join(f"stage {number} at step {step:,.0f}" for number, step in starts.items())


def _total(run: RunHistory, name: str) -> float:
    return float(np.nansum(run.training.column(name)))


def _target_tokens(run: RunHistory) -> str:
    return f"{_total(run, 'target_tokens'):,.0f}"


def _time(run: RunHistory) -> str:
    seconds = _total(run, "seconds")
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60:,} h {minutes % 60:02d} min"


def _speed(run: RunHistory) -> str:
    seconds = _total(run, "seconds")
    return f"{_total(run, 'target_tokens') / seconds:,.0f}" if seconds else ""


def _data_wait(run: RunHistory) -> str:
    seconds = _total(run, "seconds")
    return f"{_total(run, 'data_wait_seconds') / seconds:.1%}" if seconds else ""


def _utilization(run: RunHistory) -> str:
    utilization = run.training.column("flop_utilization")
    return f"{np.nanmedian(utilization):.1%}" if np.isfinite(utilization).any() else ""


def _best(
    name: str, digits: int, *, highest: bool = False, of_set: str | None = None
) -> Callable[[RunHistory], str]:
    def best(run: RunHistory) -> str:
        figures = run.validated(of_set)
        values = figures.column(name)
        if not np.isfinite(values).any():
            return ""
        at = np.nanargmax(values) if highest else np.nanargmin(values)
        return f"{short_number(values[at], digits)} (step {figures.steps[at]:,.0f})"

    return best


def _test_score(
    metric: str, figure: str = "score", of_set: str | None = None
) -> Callable[[RunHistory], str]:
    def score(run: RunHistory) -> str:
        scores = run.scores if of_set is None else run.test_sets.get(of_set, {})
        figures = scores.get(metric)
        return short_number(figures[figure], 2) if isinstance(figures, dict) else ""

    return score


def _parameters(run: RunHistory) -> str:
    return "" if run.num_parameters is None else f"{run.num_parameters:,}"


def _machines(run: RunHistory) -> str:
    """Return device and precision of the sessions, without repetitions."""
    return "; ".join(dict.fromkeys(_machine(session) for session in run.sessions))


def _machine(session: dict[str, Any]) -> str:
    ranks = session.get("ranks", 1)
    times = f"{ranks} x " if ranks != 1 else ""
    return f"{times}{session.get('device', '?')}, {session.get('precision', '?')}"


def _sessions(run: RunHistory) -> str:
    return f"{len(run.sessions):,}" if len(run.sessions) > 1 else ""


def _summary(runs: Sequence[RunHistory]) -> Iterator[Row]:
    """Yield the rows of the table of all runs."""
    yield Row("steps", _steps)
    yield Row("target tokens", _target_tokens)
    yield Row("stages begin", _stages)
    yield Row("time in steps", _time)
    yield Row("target tokens per second", _speed)
    yield Row("waiting for data", _data_wait)
    yield Row("model FLOP utilization", _utilization)
    for name in sets_to_show(runs):
        on = f" of {name}" if name is not None else ""
        yield Row(f"best validation loss{on}", _best("loss", 4, of_set=name))
        yield Row(f"best validation perplexity{on}", _best("perplexity", 3, of_set=name))
        yield Row(f"best validation BLEU{on}", _best("bleu", 2, highest=True, of_set=name))
        yield Row(f"best validation F1{on}", _best("parseval", 2, highest=True, of_set=name))
    for name in (None, *dict.fromkeys(name for run in runs for name in run.test_sets)):
        text = "the test text" if name is None else f"the test set {name}"
        yield Row(f"BLEU of {text}", _test_score("bleu", of_set=name))
        yield Row(f"chrF2 of {text}", _test_score("chrf", of_set=name))
        yield Row(f"F1 of {text}", _test_score("parseval", "f1", of_set=name))
    yield Row("parameters", _parameters)
    yield Row("device", _machines)
    yield Row("starts", _sessions)
