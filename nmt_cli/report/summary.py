"""The rows of a report's table of runs."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from nmt_cli.figures import as_text
from nmt_cli.report.run_history import RunHistory


class Row(NamedTuple):
    """One fact of every run, as text; empty if a run does not have it."""

    name: str
    of: Callable[[RunHistory], str]


def _steps(run: RunHistory) -> str:
    last = max([*run.training.steps, *run.validation.steps])
    wanted = run.recipe.training.max_steps if run.recipe is not None else None
    return f"{last:,.0f}" if wanted is None else f"{last:,.0f} of {wanted:,}"


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


def _best(name: str, digits: int, *, highest: bool = False) -> Callable[[RunHistory], str]:
    def best(run: RunHistory) -> str:
        values = run.validation.column(name)
        if not np.isfinite(values).any():
            return ""
        at = np.nanargmax(values) if highest else np.nanargmin(values)
        return f"{as_text(values[at], digits)} (step {run.validation.steps[at]:,.0f})"

    return best


def _test_score(metric: str, figure: str = "score") -> Callable[[RunHistory], str]:
    def score(run: RunHistory) -> str:
        figures = run.scores.get(metric)
        return as_text(figures[figure], 2) if isinstance(figures, dict) else ""

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


SUMMARY = (
    Row("steps", _steps),
    Row("target tokens", _target_tokens),
    Row("time in steps", _time),
    Row("target tokens per second", _speed),
    Row("waiting for data", _data_wait),
    Row("model FLOP utilization", _utilization),
    Row("best validation loss", _best("loss", 4)),
    Row("best validation perplexity", _best("perplexity", 3)),
    Row("best validation BLEU", _best("bleu", 2, highest=True)),
    Row("best validation F1", _best("parseval", 2, highest=True)),
    Row("BLEU of the test text", _test_score("bleu")),
    Row("chrF2 of the test text", _test_score("chrf")),
    Row("F1 of the test text", _test_score("parseval", "f1")),
    Row("parameters", _parameters),
    Row("device", _machines),
    Row("starts", _sessions),
)
