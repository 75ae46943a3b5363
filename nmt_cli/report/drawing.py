"""Draws the charts of a report: as SVG within a page, and as PNG files 1,600 pixels wide."""

import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from nmt_cli.report.charts import Chart, Curve, charts_of, measured
from nmt_cli.report.run_history import Floats, RunHistory

# Okabe and Ito's colours, which colour-blind readers can distinguish. Tol's wine replaces their
# yellow, which is hard to see on white.
COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#882255"
)  # fmt: skip
INK, FAINT, GRID = "#222222", "#555555", "#DDDDDD"
# In a page, these are the variables of its style sheet, which has others for the dark theme.
VARIABLES = {INK: "text", FAINT: "faint", GRID: "border"} | {
    colour: f"curve-{number}" for number, colour in enumerate(COLOURS)
}
DASHES = ("-", "--", ":", "-.")  # one for each round of the colours
# Inches; small, so that text can be read on a phone.
WIDTH, HEIGHT, PIXELS = 5.4, 3.1, 1600
POINTS_PER_INCH = 72  # the unit of SVG files
LEGEND_ROW = 0.24  # inches
LEGEND_LETTERS = 60  # in a row
LONGEST_NAME = 40
THINNEST, WIDEST, MORE_WIDTH = 1.6, 4.0, 1.2  # line widths in points; the increase for each run
MOST_SHOWN = 250  # values of a curve that a pointer finds
MANY_POINTS = 60  # curves with more points have no markers
LOG_STEPS_FROM = 20.0  # ratio of the longest to the shortest run
WIDE_RANGE = 1e4  # ratio of values; an axis of this range has at most one label per decade
LARGEST_WRITTEN_OUT = 1e9  # on an axis; longer numbers leave no room for the curves
STYLE: dict[Any, Any] = {
    "axes.grid": True,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 12,
    "font.size": 11,
    "grid.color": GRID,
    "svg.fonttype": "none",
    "svg.hashsalt": "nmt-cli",  # equal figures give equal names
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": INK,
    "ytick.color": INK,
}


class Drawing(NamedTuple):
    """A chart as an element of a page, and as a PNG file."""

    html: str
    png: bytes


class Line(NamedTuple):
    """A curve of a chart, and how it is drawn."""

    label: str
    curve: Curve
    colour: str
    dashes: str
    best: Callable[[Floats], float] | None


def draw_charts(runs: Sequence[RunHistory]) -> dict[Chart, Drawing]:
    """Return the drawing of every chart that at least one of the runs has figures for."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # a report must not depend on the user's own settings
        matplotlib.rcParams.update(STYLE)
        return {chart: _drawing(chart, runs) for chart in charts_of(runs)}


def style_of(index: int) -> tuple[str, str]:
    """Return the colour and the dashes of the run of this number."""
    return COLOURS[index % len(COLOURS)], DASHES[index // len(COLOURS) % len(DASHES)]


def _lines_of(chart: Chart, runs: Sequence[RunHistory]) -> list[Line]:
    """Return a line for each run, or for each series if the run is the only one."""
    labelled = [
        (
            series.title.removeprefix(f"{chart.title} of ") if len(runs) == 1 else _name(run),
            series,
            run,
        )
        for series in chart.series
        for run in runs
    ]
    return [
        Line(label, measured(series.curve_of(run)), *style_of(number), series.best)
        for number, (label, series, run) in enumerate(labelled)
    ]


def figure_of(chart: Chart, runs: Sequence[RunHistory]) -> Figure:
    """Return one chart of all runs; at least one of them must have figures for it."""
    return _figure_of(chart, runs, _lines_of(chart, runs))


def _figure_of(chart: Chart, runs: Sequence[RunHistory], lines: Sequence[Line]) -> Figure:
    names = [line.label for line in lines]
    columns = max(1, min(len(lines), LEGEND_LETTERS // (4 + max(map(len, names)))))
    legend_rows = -(-len(lines) // columns) if len(lines) > 1 else 0
    size = (WIDTH, HEIGHT + LEGEND_ROW * legend_rows)
    figure = Figure(figsize=size, dpi=PIXELS / WIDTH, layout="constrained")
    FigureCanvasAgg(figure)  # draws without a window
    axes = figure.add_subplot()
    drawn = [_plot(axes, line, i % len(runs), len(runs)) for i, line in enumerate(lines)]
    curves = [line.curve for line in lines if len(line.curve.steps)]
    _set_up_steps(axes, curves)
    _set_up_values(axes, chart, curves)
    for index, run in enumerate(runs):
        _mark_stages(axes, run.stage_starts(), style_of(index)[0] if len(runs) > 1 else FAINT)
    axes.set_title("\n".join(filter(None, [chart.title, f"({chart.hint})" if chart.hint else ""])))
    if legend_rows:
        figure.legend(drawn, names, loc="outside lower center", ncols=columns, frameon=False)
    return figure


def _drawing(chart: Chart, runs: Sequence[RunHistory]) -> Drawing:
    lines = _lines_of(chart, runs)
    figure = _figure_of(chart, runs, lines)
    stream = io.BytesIO()
    # Without the name of the software, equal figures give equal bytes.
    figure.savefig(stream, format="png", metadata={"Software": None})
    figure.axes[0].set_title("")  # in a page it is the heading above
    svg = io.StringIO()
    figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    found = [_values_of(line, figure) for line in lines if len(line.curve.steps)]
    return Drawing(
        f'<div class="chart" data-curves="{escape(json.dumps(found, ensure_ascii=False))}">'
        f"{_with_variables(svg.getvalue(), chart.title)}</div>",
        stream.getvalue(),
    )


def _values_of(line: Line, figure: Figure) -> dict[str, Any]:
    """Return the values of a line that its chart shows at the pointer, and where they are."""
    curve, axes = line.curve, figure.axes[0]
    chosen = np.linspace(0, len(curve.steps) - 1, min(MOST_SHOWN, len(curve.steps))).astype(int)
    if line.best is not None:
        best = list(curve.values).index(line.best(curve.values))
        chosen = np.unique(np.append(chosen, best))
    steps, values = curve.steps[chosen], curve.values[chosen]
    places = (axes.transData - figure.transFigure).transform(np.stack([steps, values], axis=1))
    width, height = POINTS_PER_INCH * figure.get_size_inches()
    points = [
        [round(x * width, 1), round((1 - y) * height, 1), f"{step:,.0f}", _value_text(value)]
        for (x, y), step, value in zip(places.tolist(), steps, values, strict=True)
    ]
    return {"name": line.label, "colour": f"var(--{VARIABLES[line.colour]})", "points": points}


def _value_text(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < LARGEST_WRITTEN_OUT else f"{value:.4g}"


def _with_variables(svg: str, title: str) -> str:
    """Return the element of an SVG file, with the colours of the page's style sheet."""
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg[svg.index("<svg") :])  # other charts have the same
    for colour, name in VARIABLES.items():
        svg = svg.replace(f": {colour.lower()}", f": var(--{name})")
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(title)}"', 1)


def _name(run: RunHistory) -> str:
    """Return the label for the legend; a long label is shortened in the middle."""
    if len(run.label) <= LONGEST_NAME:
        return run.label
    return f"{run.label[: LONGEST_NAME // 2 - 1]}…{run.label[-LONGEST_NAME // 2 :]}"


def _plot(axes: Axes, line: Line, index: int, num_runs: int) -> Line2D:
    curve, colour = line.curve, line.colour
    # Later runs have thinner lines, so that each is visible where runs agree.
    width = THINNEST + min(MORE_WIDTH * (num_runs - 1), WIDEST - THINNEST) * (
        1 - (index + 1) / num_runs
    )
    if curve.raw is not None:
        faint = max(0.06, 0.3 / num_runs)
        axes.plot(curve.steps, curve.raw, color=colour, alpha=faint, linewidth=0.6, zorder=1)
    marker = "" if len(curve.steps) > MANY_POINTS else "." if len(curve.steps) > 1 else "o"
    (drawn,) = axes.plot(
        curve.steps,
        curve.values,
        color=colour,
        linestyle=line.dashes,
        linewidth=width,
        marker=marker,
    )
    if line.best is not None and len(curve.values):
        at = list(curve.values).index(line.best(curve.values))
        axes.plot(
            curve.steps[at], curve.values[at], "o", color=colour, fillstyle="none", markersize=9
        )
    return drawn


def _mark_stages(axes: Axes, starts: Mapping[int, float], colour: str) -> None:
    """Draw a vertical line with a label where each stage began, if that is on the axis."""
    first, last = axes.get_xlim()
    there = {(text.get_text(), text.get_position()[0]) for text in axes.texts}  # of other runs
    for number, step in starts.items():
        label = f"stage {number}"
        if first <= step <= last:
            axes.axvline(step, color=colour, linestyle=":", linewidth=1.2, zorder=1.6)
            if (label, step) not in there:
                axes.text(
                    step, 0.98, label, rotation=90, fontsize=10, color=colour, ha="right", va="top",
                    transform=axes.get_xaxis_transform(),
                )  # fmt: skip
    axes.set_xlim(first, last)


def _set_up_steps(axes: Axes, curves: Sequence[Curve]) -> None:
    lengths = [curve.steps[-1] for curve in curves]
    if max(lengths) >= LOG_STEPS_FROM * max(1.0, min(lengths)):
        axes.set_xscale("log")
        axes.set_xlabel("step (logarithmic)")
        axes.xaxis.set_major_locator(LogLocator())
    else:
        axes.set_xlabel("step")
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True, steps=[1, 2, 5, 10]))
    if len({step for curve in curves for step in curve.steps}) == 1:
        axes.set_xlim(lengths[0] - 1, lengths[0] + 1)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step:,.0f}"))


def _set_up_values(axes: Axes, chart: Chart, curves: Sequence[Curve]) -> None:
    values = np.concatenate([curve.values for curve in curves])
    lowest, highest = float(values.min()), float(values.max())
    axes.set_ylabel(chart.unit)
    number = FuncFormatter(lambda value, _: _axis_text(value))
    if lowest > 0 and highest >= chart.log_from * lowest:
        axes.set_yscale("log")
        axes.set_ylabel(f"{chart.unit} (logarithmic)")
        is_wide = highest >= WIDE_RANGE * lowest
        axes.yaxis.set_major_locator(LogLocator(subs=(1,) if is_wide else (1, 2, 5)))
        axes.yaxis.set_major_formatter(number)
        axes.yaxis.set_minor_formatter(NullFormatter())
        return
    axes.yaxis.set_major_formatter(number)
    raw = np.concatenate([curve.values if curve.raw is None else curve.raw for curve in curves])
    # Percentiles, so that a single spike in the noise does not flatten the rest.
    bottom, top = np.percentile(raw[np.isfinite(raw)], [0.5, 99.5])
    bottom, top = min(lowest, float(bottom)), max(highest, float(top))
    if chart.from_zero:
        bottom = min(0.0, bottom)
    margin = 0.05 * (top - bottom) or 0.1 * abs(top) or 1.0
    axes.set_ylim(bottom if chart.from_zero else bottom - margin, top + margin)


def _axis_text(value: float) -> str:
    if abs(value) >= LARGEST_WRITTEN_OUT:
        return f"{value:g}"
    return f"{value:,.10f}".rstrip("0").rstrip(".")
