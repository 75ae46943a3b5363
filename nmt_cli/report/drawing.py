"""Draws the charts of a report: as SVG within a page, and as PNG files 1,600 pixels wide."""

import io
import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from nmt_cli.report.charts import SHARE_OF_RUN, Chart, Curve, charts_of, measured
from nmt_cli.report.run_history import RunHistory

# Okabe and Ito's colours, which colour-blind readers can distinguish. Tol's wine replaces their
# yellow, which is hard to see on white.
COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#882255"
)  # fmt: skip
GREY, PALE = "#555555", "#DDDDDD"
# In a page, variables of its style sheet take their place, and have other values in dark themes.
VARIABLES = {GREY: "faint", PALE: "border"} | {
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
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 11,
    "font.size": 11,
    "grid.color": PALE,
    "svg.fonttype": "none",
    "svg.hashsalt": "nmt-cli",  # equal figures give equal names
    "text.parse_math": False,
}


class Drawing(NamedTuple):
    """A chart as an element of a page, and as a PNG file."""

    name: str  # of the file, without .png
    title: str
    html: str
    png: bytes


def draw_charts(runs: Sequence[RunHistory]) -> list[Drawing]:
    """Return the drawing of every chart that at least one of the runs has figures for."""
    with style.context(STYLE, after_reset=True):  # without the user's own settings
        return [_drawing(chart, runs) for chart in charts_of(runs)]


def style_of(index: int) -> tuple[str, str]:
    """Return the colour and the dashes of the run of this number."""
    return COLOURS[index % len(COLOURS)], DASHES[index // len(COLOURS) % len(DASHES)]


def _curves_of(chart: Chart, runs: Sequence[RunHistory]) -> list[tuple[str, Curve]]:
    """Return the curves with their labels: their titles if there is one run, or else the runs."""
    return [
        (
            _name(run) if len(runs) > 1 else title.removeprefix(f"{chart.title} of "),
            measured(curve_of(run)),
        )
        for title, curve_of in chart.curves.items()
        for run in runs
    ]


def figure_of(chart: Chart, runs: Sequence[RunHistory]) -> Figure:
    """Return one chart of all runs; at least one of them must have figures for it."""
    names, curves = zip(*_curves_of(chart, runs), strict=True)
    columns = max(1, min(len(names), LEGEND_LETTERS // (4 + max(map(len, names)))))
    legend_rows = -(-len(names) // columns) if len(names) > 1 else 0
    size = (WIDTH, HEIGHT + LEGEND_ROW * legend_rows)
    figure = Figure(figsize=size, dpi=PIXELS / WIDTH, layout="constrained")
    FigureCanvasAgg(figure)  # draws without a window
    axes = figure.add_subplot()
    lines = [_plot(axes, chart, curve, i, len(runs)) for i, curve in enumerate(curves)]
    drawn = [curve for curve in curves if len(curve.steps)]
    _set_up_steps(axes, drawn)
    _set_up_values(axes, chart, drawn)
    for index, run in enumerate(runs):
        _mark_stages(axes, run.stage_starts(), style_of(index)[0] if len(runs) > 1 else GREY)
    if legend_rows:
        figure.legend(lines, names, loc="outside lower center", ncols=columns, frameon=False)
    are_smoothed = {curve.raw is not None for curve in curves}
    hints = [f"steps smoothed over {SHARE_OF_RUN:.0%} of a run"] if True in are_smoothed else []
    hints += ["best ringed"] if chart.best is not None and False in are_smoothed else []
    axes.set_title("\n".join([chart.title, *([", ".join(hints)] if hints else [])]))
    return figure


def _drawing(chart: Chart, runs: Sequence[RunHistory]) -> Drawing:
    figure = figure_of(chart, runs)
    png, svg = io.BytesIO(), io.StringIO()
    # Without the name of the software and the date, equal figures give equal bytes.
    figure.savefig(png, format="png", metadata={"Software": None})
    # In a page, the title is the heading above.
    figure.axes[0].set_title(figure.axes[0].get_title().removeprefix(chart.title).strip())
    figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    values = [
        {
            "name": name,
            "colour": f"var(--{VARIABLES[style_of(i)[0]]})",
            "points": _points_of(curve, figure),
        }
        for i, (name, curve) in enumerate(_curves_of(chart, runs))
        if len(curve.steps)
    ]
    html = (
        f'<div class="chart" data-curves="{escape(json.dumps(values, ensure_ascii=False))}">'
        f"{_with_variables(svg.getvalue(), chart.title)}</div>"
    )
    return Drawing(chart.name, chart.title, html, png.getvalue())


def _points_of(curve: Curve, figure: Figure) -> list[tuple[float, float, str, str]]:
    """Return where values are in the SVG file of a chart, their steps and the values as text."""
    chosen = np.linspace(0, len(curve.steps) - 1, min(MOST_SHOWN, len(curve.steps))).astype(int)
    chosen = np.union1d(chosen, [curve.values.argmin(), curve.values.argmax()])
    to_figure = figure.axes[0].transData - figure.transFigure
    width, height = POINTS_PER_INCH * figure.get_size_inches()
    points = []
    for step, value in zip(curve.steps[chosen], curve.values[chosen], strict=True):
        x, y = to_figure.transform((step, value))
        is_long = 1000 <= abs(value) < LARGEST_WRITTEN_OUT
        text = f"{value:,.0f}" if is_long else f"{value:.4g}"
        points.append((round(x * width, 1), round((1 - y) * height, 1), f"{step:,.0f}", text))
    return points


def _with_variables(svg: str, title: str) -> str:
    """Return the element of an SVG file, with the colours of the page's style sheet."""
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg[svg.index("<svg") :])  # other charts have the same
    for colour, name in VARIABLES.items():
        svg = svg.replace(f": {colour.lower()}", f": var(--{name})")
    # Where a long path crosses itself, its opacity adds up in Chromium; a paler colour does not.
    paler = r"stroke: color-mix(in srgb, \1 calc(\2 * 100%), var(--card))"
    svg = re.sub(r"stroke: (var\([^)]*\)); stroke-opacity: ([0-9.]+)", paler, svg)
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(title)}"', 1)


def _name(run: RunHistory) -> str:
    """Return the label for the legend; a long label is shortened in the middle."""
    if len(run.label) <= LONGEST_NAME:
        return run.label
    return f"{run.label[: LONGEST_NAME // 2 - 1]}…{run.label[-LONGEST_NAME // 2 :]}"


def _plot(axes: Axes, chart: Chart, curve: Curve, index: int, num_runs: int) -> Line2D:
    colour, dashes = style_of(index)
    # Later runs have thinner lines, so that each is visible where runs agree.
    width = THINNEST + min(MORE_WIDTH * (num_runs - 1), WIDEST - THINNEST) * (
        1 - (index % num_runs + 1) / num_runs
    )
    if curve.raw is not None:
        faint = max(0.06, 0.3 / num_runs)
        axes.plot(curve.steps, curve.raw, color=colour, alpha=faint, linewidth=0.6, zorder=1)
    marker = "" if len(curve.steps) > MANY_POINTS else "." if len(curve.steps) > 1 else "o"
    (line,) = axes.plot(
        curve.steps, curve.values, color=colour, linestyle=dashes, linewidth=width, marker=marker
    )
    if chart.best is not None and curve.raw is None and len(curve.values):
        at = list(curve.values).index(chart.best(curve.values))
        axes.plot(
            curve.steps[at], curve.values[at], "o", color=colour, fillstyle="none", markersize=9
        )
    return line


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
