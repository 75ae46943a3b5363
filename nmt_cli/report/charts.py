"""What the charts of a report show: figures of runs, smoothed where they are noisy."""

import math
from collections.abc import Callable, Mapping, Sequence
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


class Chart(NamedTuple):
    """What a chart shows, and how its axis looks."""

    title: str
    unit: str
    curves: Mapping[str, Callable[[RunHistory], Curve]]  # each by its title
    best: Callable[[Floats], float] | None = None  # returns the value that gets a ring
    from_zero: bool = False
    log_from: float = math.inf  # ratio of largest to smallest value from which the axis is log

    @property
    def name(self) -> str:
        """The name of the file, without .png: validation_loss_news."""
        figure, _, of_set = self.title.partition(" of ")
        return "_".join([*figure.lower().split(), *([of_set] if of_set else [])])


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


def all_charts(sets: Sequence[str | None]) -> list[Chart]:
    """Return the charts of runs with these validation sets; None is the one that decides."""

    def validated(name: str, figure: str) -> dict[str, Callable[[RunHistory], Curve]]:
        titles = [f"Validation {name}" + (f" of {each}" if each else "") for each in sets]
        return {title: _validation(figure, each) for title, each in zip(titles, sets, strict=True)}

    loss = {"Training loss": _training_loss, **validated("loss", "loss")}
    perplexity, bleu = validated("perplexity", "perplexity"), validated("BLEU", "bleu")
    f1, script = validated("F1", "parseval"), validated("script", "script")
    return [
        Chart("Loss", "nats per target token", loss, best=min, log_from=DIVERGED),
        Chart("Validation perplexity", "perplexity of a piece", perplexity, min, log_from=4.0),
        Chart("Validation BLEU", "BLEU", bleu, max),
        Chart("Validation F1", "F1 (PARSEVAL)", f1, max),
        Chart("Validation script", "number of --validation-script", script, max),
        Chart("Learning rate", "learning rate", {"Learning rate": _learning_rate}, from_zero=True),
        Chart("Speed", "target tokens per second", {"Speed": _speed}, from_zero=True),
    ]


def charts_of(runs: Sequence[RunHistory]) -> list[Chart]:
    """Return the charts that at least one of the runs has figures for.

    A chart of one run has all its sets, and the loss of training beside that of validation. Of
    several runs, a chart has one curve of each.
    """
    found = []
    for chart in all_charts(sets_to_show(runs)):
        there = {
            title: of
            for title, of in chart.curves.items()
            if any(len(measured(of(run)).steps) for run in runs)
        }
        if len(runs) == 1 < len(there):
            found.append(chart._replace(curves=there))
        else:
            found += [chart._replace(title=title, curves={title: there[title]}) for title in there]
    return found


def measured(curve: Curve) -> Curve:
    """Return the curve without what cannot be drawn."""
    there = np.abs(curve.values) <= LARGEST_DRAWN  # false for NaN
    raw = None if curve.raw is None else curve.raw[there]
    return Curve(curve.steps[there], curve.values[there], raw)
