"""The charts of a report, as PNG files 1,600 pixels wide, to be shown at half that width."""

import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from nmt_cli.report.run_history import Floats, RunHistory, sets_to_show

SHARE_OF_RUN = 0.02


def window_of(num_values: int) -> int:
    """Return the size of the smoothing window for ``num_values`` values, an odd number."""
    return 2 * int(num_values * SHARE_OF_RUN / 2) + 1


def moving_mean(values: Floats, weights: Floats, window: int) -> Floats:
    """Return the weighted mean of the ``window`` values around each value.

    Near the beginning the window shrinks on both sides, because losses fall fast there; near the
    end it is cut off. NaN and values of weight 0 are ignored. The mean is NaN only if all values in
    its window are ignored.
    """
    counts = np.isfinite(values) & (weights > 0)  # NaN is not greater
    weights = np.where(counts, weights, 0.0)
    totals = _moving_sum(np.where(counts, values, 0.0) * weights, window)
    shares = _moving_sum(weights, window)
    numbers = _moving_sum(counts.astype(float), window)
    return np.divide(totals, shares, out=np.full(len(values), np.nan), where=numbers > 0.5)


def _moving_sum(values: Floats, window: int) -> Floats:
    sums = np.concatenate([[0.0], np.cumsum(values)])
    places = np.arange(len(values))
    reach = np.minimum(window // 2, places)
    return sums[np.minimum(places + reach + 1, len(values))] - sums[places - reach]


# Okabe and Ito's colours, which colour-blind readers can distinguish. Tol's wine replaces their
# yellow, which is hard to see on white.
COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#882255"
)  # fmt: skip
DASHES = ("-", "--", ":", "-.")  # one for each round of the colours
WIDTH, HEIGHT, DOTS_PER_INCH = 8.0, 4.2, 200  # inches
LEGEND_ROW = 0.24  # inches
LEGEND_LETTERS = 96  # in a row
LONGEST_NAME = 40
THINNEST, WIDEST, MORE_WIDTH = 1.6, 4.0, 1.2  # line widths in points; the increase for each run
MANY_POINTS = 60  # curves with more points have no markers
LOG_STEPS_FROM = 20.0  # ratio of the longest to the shortest run
DIVERGED = 30.0  # ratio of losses
WIDE_RANGE = 1e4  # ratio of values; an axis of this range has at most one label per decade
LARGEST_DRAWN = 1e100  # near the largest float, axes cannot be computed
LARGEST_WRITTEN_OUT = 1e9  # on an axis; longer numbers leave no room for the curves
GREY = "#555555"
STYLE: dict[Any, Any] = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 11,
    "grid.color": "#DDDDDD",
    "text.parse_math": False,
}


class Curve(NamedTuple):
    """The line of one run in a chart; if it is smoothed, ``raw`` are the values before that."""

    steps: Floats
    values: Floats
    raw: Floats | None = None


class Chart(NamedTuple):
    """What a chart shows, and how its axis looks."""

    name: str  # of the file, without .png
    title: str
    unit: str
    curve_of: Callable[[RunHistory], Curve]
    hint: str = ""
    best: Callable[[Floats], float] | None = None  # returns the value that gets a ring
    from_zero: bool = False
    log_from: float = math.inf  # ratio of largest to smallest value from which the axis is log


def _training_loss(run: RunHistory) -> Curve:
    loss, tokens = (run.training.column(name) for name in ("loss", "target_tokens"))
    return Curve(run.training.steps, moving_mean(loss, tokens, window_of(len(loss))), raw=loss)


def _speed(run: RunHistory) -> Curve:
    tokens, seconds = (run.training.column(name) for name in ("target_tokens", "seconds"))
    speed = np.divide(tokens, seconds, out=np.full(len(tokens), np.nan), where=seconds > 0)
    return Curve(run.training.steps, moving_mean(speed, seconds, window_of(len(speed))), raw=speed)


def _learning_rate(run: RunHistory) -> Curve:
    return Curve(run.training.steps, run.training.column("learning_rate"))


def _validation(figure: str, of_set: str | None = None) -> Callable[[RunHistory], Curve]:
    def curve(run: RunHistory) -> Curve:
        figures = run.validated(of_set)
        return Curve(figures.steps, figures.column(figure))

    return curve


SMOOTHED, RINGED = f"smoothed over {SHARE_OF_RUN:.0%} of a run", "best ringed"
NATS = "nats per target token"
VALIDATION_CHARTS = {
    "loss": Chart("validation_loss", "Validation loss", NATS, _validation("loss"), RINGED,
                  best=min, log_from=DIVERGED),
    "perplexity": Chart("validation_perplexity", "Validation perplexity", "perplexity of a piece",
                        _validation("perplexity"), RINGED, best=min, log_from=4.0),
    "bleu": Chart("validation_bleu", "Validation BLEU", "BLEU", _validation("bleu"), RINGED,
                  best=max),
    "parseval": Chart("validation_f1", "Validation F1", "F1 (PARSEVAL)", _validation("parseval"),
                      RINGED, best=max),
    "script": Chart("validation_script", "Validation script", "number of --validation-script",
                    _validation("script"), RINGED, best=max),
}  # fmt: skip
CHARTS = (
    Chart("training_loss", "Training loss", NATS, _training_loss, SMOOTHED, log_from=DIVERGED),
    *VALIDATION_CHARTS.values(),
    Chart("learning_rate", "Learning rate", "learning rate", _learning_rate, from_zero=True),
    Chart("speed", "Training speed", "target tokens per second", _speed, SMOOTHED,
          from_zero=True),
)  # fmt: skip


def _charts_of_set(name: str) -> list[Chart]:
    """Return the charts of a validation set with a name."""
    return [
        chart._replace(
            name=f"{chart.name}_{name}",
            title=f"{chart.title} of {name}",
            curve_of=_validation(figure, name),
        )
        for figure, chart in VALIDATION_CHARTS.items()
    ]


def draw_charts(runs: Sequence[RunHistory]) -> dict[Chart, bytes]:
    """Return the PNG of every chart that at least one of the runs has figures for."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # a report must not depend on the user's own settings
        matplotlib.rcParams.update(STYLE)
        return {chart: _as_png(figure_of(chart, runs)) for chart in charts_of(runs)}


def charts_of(runs: Sequence[RunHistory]) -> list[Chart]:
    """Return the charts that at least one of the runs has figures for."""
    names = sets_to_show(runs)
    left_out = () if None in names else VALIDATION_CHARTS.values()
    charts = [chart for chart in CHARTS if chart not in left_out]
    charts += [chart for name in names if name is not None for chart in _charts_of_set(name)]
    return [
        chart for chart in charts if any(len(_measured(chart.curve_of(run)).steps) for run in runs)
    ]


def style_of(index: int) -> tuple[str, str]:
    """Return the colour and the dashes of the run of this number."""
    return COLOURS[index % len(COLOURS)], DASHES[index // len(COLOURS) % len(DASHES)]


def figure_of(chart: Chart, runs: Sequence[RunHistory]) -> Figure:
    """Return one chart of all runs; at least one of them must have figures for it."""
    names = [_name(run) for run in runs]
    columns = max(1, min(len(runs), LEGEND_LETTERS // (4 + max(map(len, names)))))
    legend_rows = -(-len(runs) // columns) if len(runs) > 1 else 0
    size = (WIDTH, HEIGHT + LEGEND_ROW * legend_rows)
    figure = Figure(figsize=size, dpi=DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)  # draws without a window
    axes = figure.add_subplot()
    curves = [_measured(chart.curve_of(run)) for run in runs]
    lines = [_plot(axes, chart, curve, i, len(runs)) for i, curve in enumerate(curves)]
    drawn = [curve for curve in curves if len(curve.steps)]
    _set_up_steps(axes, drawn)
    _set_up_values(axes, chart, drawn)
    for index, run in enumerate(runs):
        _mark_stages(axes, run.stage_starts(), style_of(index)[0] if len(runs) > 1 else GREY)
    hint = f" ({chart.hint})" if chart.hint else ""
    axes.set_title(f"{chart.title}{hint}")
    if legend_rows:
        figure.legend(lines, names, loc="outside lower center", ncols=columns, frameon=False)
    return figure


def _as_png(figure: Figure) -> bytes:
    stream = io.BytesIO()
    # Without the name of the software, equal figures give equal bytes.
    figure.savefig(stream, format="png", metadata={"Software": None})
    return stream.getvalue()


def _name(run: RunHistory) -> str:
    """Return the label for the legend; a long label is shortened in the middle."""
    if len(run.label) <= LONGEST_NAME:
        return run.label
    return f"{run.label[: LONGEST_NAME // 2 - 1]}…{run.label[-LONGEST_NAME // 2 :]}"


def _measured(curve: Curve) -> Curve:
    there = np.abs(curve.values) <= LARGEST_DRAWN  # false for NaN
    raw = None if curve.raw is None else curve.raw[there]
    return Curve(curve.steps[there], curve.values[there], raw)


def _plot(axes: Axes, chart: Chart, curve: Curve, index: int, num_runs: int) -> Line2D:
    colour, dashes = style_of(index)
    # Later runs have thinner lines, so that each is visible where runs agree.
    width = THINNEST + min(MORE_WIDTH * (num_runs - 1), WIDEST - THINNEST) * (
        1 - (index + 1) / num_runs
    )
    if curve.raw is not None:
        faint = max(0.06, 0.3 / num_runs)
        axes.plot(curve.steps, curve.raw, color=colour, alpha=faint, linewidth=0.6, zorder=1)
    marker = "" if len(curve.steps) > MANY_POINTS else "." if len(curve.steps) > 1 else "o"
    (line,) = axes.plot(
        curve.steps, curve.values, color=colour, linestyle=dashes, linewidth=width, marker=marker
    )
    if chart.best is not None and len(curve.values):
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
        axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
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
