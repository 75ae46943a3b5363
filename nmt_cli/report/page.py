"""The page of a report: one HTML file that needs neither other files nor a network."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from nmt_cli.messages.figures import moment_text, short_number, time_text
from nmt_cli.recipe.keys import changed_keys
from nmt_cli.recipe.reading.recipe_files import dump_recipe
from nmt_cli.recipe.schema import Recipe
from nmt_cli.report import frame
from nmt_cli.report.drawing import Drawing
from nmt_cli.report.run_history import (
    Floats,
    RunDetails,
    RunHistory,
    StepFigures,
    TranslatedSet,
    sets_to_show,
)

LONGEST_VALUE = 200
MANY = 4  # from this number of runs on, the title does not name them
NUM_EXAMPLES = 10


class Figure(NamedTuple):
    """A figure that each validation has; the page shows its best value."""

    heading: str
    key: str
    digits: int
    place_of: Callable[[Floats], np.intp]  # of the best value


FIGURES = (
    Figure("loss", "loss", 4, np.nanargmin),
    Figure("perplexity", "perplexity", 3, np.nanargmin),
    Figure("BLEU", "bleu", 2, np.nanargmax),
    Figure("F1", "parseval", 2, np.nanargmax),
    Figure("number of --validation-script", "script", 4, np.nanargmax),
)


def as_html(
    runs: Sequence[RunHistory], charts: Sequence[Drawing], details: RunDetails | None = None
) -> str:
    """Return the page; ``details`` are those of the only run."""
    names = ", ".join(run.label for run in runs) if len(runs) < MANY else f"{len(runs)} runs"
    sets, tests = sets_to_show(runs), dict.fromkeys(name for run in runs for name in run.test_sets)
    cells = [_cells(run, sets, tests) for run in runs]
    figures = frame.section(
        "Figures", _table(runs, {name: [of_run[name] for of_run in cells] for name in cells[0]})
    )
    drawn = [frame.section(chart.title, chart.html) for chart in charts]
    if details is None:
        parts = [figures, frame.columns(drawn)]
    else:
        serve = frame.section("Translate with it", frame.code(details.serve))
        parts = [
            _tiles(runs[0]),
            *([serve] if details.serve else []),
            frame.columns([*drawn, *_about(runs[0], details), figures]),
            *_translations(details.translated),
        ]
    parts += [
        *[_student_table(run) for run in runs if run.student_table],
        *_differences(runs),
        *[_recipe(run) for run in runs if run.recipe is not None],
    ]
    recipe = runs[0].recipe if len(runs) == 1 else None
    return frame.page(f"Training of {names}", parts, "" if recipe is None else recipe.description)


def _tiles(run: RunHistory) -> str:
    """Return the tiles of a run: scores, loss, time and size."""
    scores = run.test_sets or {"the test text": run.scores}
    name, tested = next(iter(scores.items()))
    note = f"of {name}" + (f", {len(scores) - 1} more below" if len(scores) > 1 else "")
    validated = run.validated(run.deciding_set)
    best = {figure.heading: _best(validated, figure) for figure in FIGURES}
    seconds = float(np.nansum(run.training.column("seconds")))
    return frame.tiles(
        [
            ("BLEU", _score(tested, "bleu"), note),
            ("chrF2", _score(tested, "chrf"), note),
            ("F1", _score(tested, "parseval", "f1"), note),
            *(
                (f"{heading[0].upper()}{heading[1:]}", value, f"validation, {step}")
                for heading, (value, step) in best.items()
            ),
            ("Time in steps", time_text(seconds), f"{_steps(run)} steps"),
            ("Parameters", _parameters(run), ""),
        ]
    )


def _translations(sets: Sequence[TranslatedSet]) -> Iterator[str]:
    """Yield the sections of each test set; those after the first are folded."""
    if not sets:
        there_are = "There are none; nmt-cli run translates the text of data.test and scores it."
        yield frame.section("Translations", frame.note(there_are))
    for number, text in enumerate(sets):
        step = max(1, -(-len(text.lines) // NUM_EXAMPLES))
        order = sorted(range(len(text.lines)), key=lambda place: text.lines[place][-1])
        sections = [
            _lines(f"Translations of {text.name}", text, range(0, len(text.lines), step)),
            _lines(f"The worst lines of {text.name}, by chrF2", text, order[:NUM_EXAMPLES]),
        ]
        if number:
            yield frame.folded(f"Translations of {text.name}", *sections)
        else:
            yield from sections


def _lines(heading: str, text: TranslatedSet, places: Iterable[int]) -> str:
    source, target = text.languages
    rows = [(f"{i + 1:,}", *text.lines[i][:3], f"{text.lines[i][-1]:.1f}") for i in places]
    headings = ["Line", "Source", "Translation", "Reference", "chrF2"]
    shown = frame.examples(headings, [None, source, target, target, None], rows)
    return frame.section(heading, shown, frame.note(f"chrF2 of a line: {text.signature}"))


def _about(run: RunHistory, details: RunDetails) -> Iterator[str]:
    """Yield the sections about the text and the machine."""
    if details.dropped:
        yield frame.section("Training text", frame.table(details.dropped[0], details.dropped[1:]))
    rows = [
        [
            moment_text(session["at"]) if "at" in session else "unknown",
            f"{session.get('from_step', 0):,}",
            f"{_machine(session)}, {session.get('cores', '?')} cores",
            session.get("machine", ""),
            ", ".join(map(" ".join, list(session.get("versions", {}).items())[:2])),
        ]
        for session in run.sessions
    ]
    if rows:
        headings = ["started", "from step", "on", "system", "by"]
        state = [frame.note(f"Training {details.state}.")] if details.state else []
        yield frame.section("Machine and dates", frame.examples(headings, [None] * 5, rows), *state)


def _table(runs: Sequence[RunHistory], rows: Mapping[str, Sequence[str]]) -> str:
    """Return a table with one column per run; rows without any value are left out."""
    return frame.table(
        ["", *(run.label for run in runs)] if len(runs) > 1 else [],
        [
            [name, *(value or "–" for value in values)]
            for name, values in rows.items()
            if any(values)
        ],
    )


def _student_table(run: RunHistory) -> str:
    """Return the table of a student and its teacher."""
    assert run.student_table is not None
    (headings, *rows), notes = run.student_table
    return frame.section(
        f"{run.label} and its teacher", frame.table(headings, rows), *map(frame.note, notes)
    )


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
        on, validated = f" of {name}" if name is not None else "", run.validated(name)
        for figure in FIGURES:
            best = "best" if figure.key == "script" else "best validation"
            value, step = _best(validated, figure)
            cells[f"{best} {figure.heading}{on}"] = f"{value} ({step})" if value else ""
    for text, scores in [
        ("the test text", run.scores),
        *((f"the test set {name}", run.test_sets.get(name, {})) for name in tests),
    ]:
        cells[f"BLEU of {text}"] = _score(scores, "bleu")
        cells[f"chrF2 of {text}"] = _score(scores, "chrf")
        cells[f"F1 of {text}"] = _score(scores, "parseval", "f1")
    cells["parameters"] = _parameters(run)
    cells["device"] = "; ".join(dict.fromkeys(map(_machine, run.sessions)))
    cells["starts"] = f"{len(run.sessions):,}" if len(run.sessions) > 1 else ""
    return cells


def _parameters(run: RunHistory) -> str:
    return "" if run.num_parameters is None else f"{run.num_parameters:,}"


def _steps(run: RunHistory) -> str:
    last = max([*run.training.steps, *run.validation.steps])
    wanted = run.recipe.training.max_steps if run.recipe is not None else None
    return f"{last:,.0f}" if wanted is None else f"{last:,.0f} of {wanted:,}"


def _best(validated: StepFigures, figure: Figure) -> tuple[str, str]:
    """Return the best value and its step, as text; "" if there is none."""
    values = validated.column(figure.key)
    if not np.isfinite(values).any():
        return "", ""
    at = figure.place_of(values)
    return short_number(values[at], figure.digits), f"step {validated.steps[at]:,.0f}"


def _score(scores: Mapping[str, Any], metric: str, figure: str = "score") -> str:
    figures = scores.get(metric)
    return short_number(figures[figure], 2) if isinstance(figures, dict) else ""


def _machine(session: Mapping[str, Any]) -> str:
    ranks = session.get("ranks", 1)
    times = f"{ranks} x " if ranks != 1 else ""
    return f"{times}{session.get('device', '?')}, {session.get('precision', '?')}"
