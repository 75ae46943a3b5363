"""What the charts of a report show: figures of runs, smoothed where they are noisy."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from nmt_cli.report.run_history import Floats, RunHistory, sets_to_show

SHARE_OF_RUN = 0.02
DIVERGED = 30.0  # ratio of losses
LARGEST_DRAWN = 1e100  # near the largest float, axes cannot be computed


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


class Curve(NamedTuple):
    """The line of one run in a chart; if it is smoothed, ``raw`` are the values before that."""

    steps: Floats
    values: Floats
    raw: Floats | None = None


class Series(NamedTuple):
    """Figures that each run may have: a curve of a chart."""

    name: str
    title: str
    curve_of: Callable[[RunHistory], Curve]
    hint: str = ""
    best: Callable[[Floats], float] | None = None  # returns the value that gets a ring


class Chart(NamedTuple):
    """What a chart shows, and how its axis looks."""

    name: str  # of the file, without .png
    title: str
    unit: str
    series: tuple[Series, ...]
    from_zero: bool = False
    log_from: float = math.inf  # ratio of largest to smallest value from which the axis is log

    @property
    def hint(self) -> str:
        """Return what the curves are."""
        return ", ".join(dict.fromkeys(each.hint for each in self.series if each.hint))

    def split(self) -> "list[Chart]":
        """Return a chart for each of its series."""
        return [
            self._replace(name=each.name, title=each.title, series=(each,)) for each in self.series
        ]


def _training_loss(run: RunHistory) -> Curve:
    loss, tokens = (run.training.column(name) for name in ("loss", "target_tokens"))
    return Curve(run.training.steps, moving_mean(loss, tokens, window_of(len(loss))), raw=loss)


def _speed(run: RunHistory) -> Curve:
    tokens, seconds = (run.training.column(name) for name in ("target_tokens", "seconds"))
    speed = np.divide(tokens, seconds, out=np.full(len(tokens), np.nan), where=seconds > 0)
    return Curve(run.training.steps, moving_mean(speed, seconds, window_of(len(speed))), raw=speed)


def _learning_rate(run: RunHistory) -> Curve:
    return Curve(run.training.steps, run.training.column("learning_rate"))


def _validation(figure: str, of_set: str | None) -> Callable[[RunHistory], Curve]:
    def curve(run: RunHistory) -> Curve:
        figures = run.validated(of_set)
        return Curve(figures.steps, figures.column(figure))

    return curve


SMOOTHED, RINGED = f"smoothed over {SHARE_OF_RUN:.0%} of a run", "best ringed"
VALIDATED = {  # its key in the figures: the end of the name, of the title, and the best of values
    "loss": ("loss", "loss", min),
    "perplexity": ("perplexity", "perplexity", min),
    "bleu": ("bleu", "BLEU", max),
    "parseval": ("f1", "F1", max),
    "script": ("script", "script", max),
}


def _series_of(figure: str, sets: Sequence[str | None]) -> tuple[Series, ...]:
    """Return the series of a figure of each validation set."""
    name, title, best = VALIDATED[figure]
    return tuple(
        Series(
            f"validation_{name}" if of_set is None else f"validation_{name}_{of_set}",
            f"Validation {title}" if of_set is None else f"Validation {title} of {of_set}",
            _validation(figure, of_set),
            RINGED,
            best,
        )
        for of_set in sets
    )


def all_charts(sets: Sequence[str | None]) -> list[Chart]:
    """Return the charts of runs with these validation sets; None is the one that decides."""
    of = {figure: _series_of(figure, sets) for figure in VALIDATED}
    loss = Series("training_loss", "Training loss", _training_loss, f"training {SMOOTHED}")
    rate = Series("learning_rate", "Learning rate", _learning_rate)
    speed = Series("speed", "Training speed", _speed, SMOOTHED)
    return [
        Chart("loss", "Loss", "nats per target token", (loss, *of["loss"]), log_from=DIVERGED),
        Chart("validation_perplexity", "Validation perplexity", "perplexity of a piece",
              of["perplexity"], log_from=4.0),
        Chart("validation_bleu", "Validation BLEU", "BLEU", of["bleu"]),
        Chart("validation_f1", "Validation F1", "F1 (PARSEVAL)", of["parseval"]),
        Chart("validation_script", "Validation script", "number of --validation-script",
              of["script"]),
        Chart("learning_rate", "Learning rate", "learning rate", (rate,), from_zero=True),
        Chart("speed", "Training speed", "target tokens per second", (speed,), from_zero=True),
    ]  # fmt: skip


def charts_of(runs: Sequence[RunHistory]) -> list[Chart]:
    """Return the charts that at least one of the runs has figures for.

    A chart of one run has all its sets, and the loss of training beside that of validation. Of
    several runs, a chart has one curve of each.
    """
    there = [
        chart._replace(series=tuple(each for each in chart.series if _is_measured(each, runs)))
        for chart in all_charts(sets_to_show(runs))
    ]
    return [
        part
        for chart in there
        for part in ([chart] if len(runs) == 1 < len(chart.series) else chart.split())
    ]


def _is_measured(series: Series, runs: Sequence[RunHistory]) -> bool:
    return any(len(measured(series.curve_of(run)).steps) for run in runs)


def measured(curve: Curve) -> Curve:
    """Return the curve without what cannot be drawn."""
    there = np.abs(curve.values) <= LARGEST_DRAWN  # false for NaN
    raw = None if curve.raw is None else curve.raw[there]
    return Curve(curve.steps[there], curve.values[there], raw)
