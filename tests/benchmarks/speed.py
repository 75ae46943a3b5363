"""Measures speed in rounds: every toolkit and precision has a turn on the same batches."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from statistics import median
from typing import Any, NamedTuple

from nmt_cli.messages import logs
from nmt_cli.messages.figures import duration_text
from tests.benchmarks.cpu_time import TICKS
from tests.benchmarks.processes import Toolkit, Worker, WorkerError

MIN_ROUNDS = 3

OpenWorker = Callable[[Toolkit], Worker]


class Rounds(NamedTuple):
    """The steps of a turn, and the limits on the number of rounds."""

    warm_up: int  # steps of a first turn that is not counted
    counted: int  # steps of each turn, after one that is not counted
    max_rounds: int
    seconds: float  # for all rounds; MIN_ROUNDS of one counted step may take longer

    def fitted(self, step_seconds: float) -> "Rounds":
        """Return rounds of fewer steps if MIN_ROUNDS take too long, a step of each row so long."""
        most = int(self.seconds / (MIN_ROUNDS * step_seconds)) - 1
        return self._replace(counted=max(1, min(self.counted, most)))


class Row(NamedTuple):
    """A line of the table."""

    toolkit: Toolkit
    variant: str


def measure(rows: Sequence[Row], open_worker: OpenWorker, rounds: Rounds) -> dict[str, Any]:
    """Return {"rows": {toolkit: {variant: figures}}, "failures": {toolkit: reason}, ...}.

    Rates are real target tokens a second, one for each round.
    """
    failures: dict[str, str] = {}
    with ExitStack() as stack:
        workers: dict[Toolkit, Worker] = {}
        for toolkit in dict.fromkeys(row.toolkit for row in rows):
            try:
                workers[toolkit] = stack.enter_context(open_worker(toolkit))
            except WorkerError as error:
                failures[toolkit.name] = str(error)
        facts = {toolkit.name: worker.facts for toolkit, worker in workers.items()}
        turns = _Turns(rows, workers, failures)
        started = time.monotonic()
        turns.take(0, rounds.warm_up)
        if rounds.max_rounds >= MIN_ROUNDS:
            rounds = rounds.fitted((time.monotonic() - started) / rounds.warm_up)
        started, done = time.monotonic(), 0
        turns.steps.clear()
        while done < rounds.max_rounds:
            first = rounds.warm_up + done * (1 + rounds.counted)
            turns.take(first, 1 + rounds.counted, start_with=done)
            done += 1
            spent = time.monotonic() - started
            if done >= MIN_ROUNDS and spent * (done + 1) / done > rounds.seconds:
                break
            if done < rounds.max_rounds:
                each = duration_text(round(spent / done))
                logs.info(f"round {done} of at most {rounds.max_rounds}, {each} each")
    figures: dict[str, dict[str, Any]] = {}
    for row, answers in turns.steps.items():
        if row.toolkit.name not in failures:
            figures.setdefault(row.toolkit.name, {})[row.variant] = _figures(answers)
    return {"rows": figures, "failures": failures, "facts": facts, "rounds": done}


class _Turns:
    """Gives every row its turn; a toolkit that fails gets no more turns."""

    def __init__(
        self, rows: Sequence[Row], workers: dict[Toolkit, Worker], failures: dict[str, str]
    ) -> None:
        self._rows, self._workers, self._failures = rows, workers, failures
        self.steps: dict[Row, list[dict[str, Any]]] = {}

    def take(self, first: int, count: int, start_with: int = 0) -> None:
        """Train every row on the same batches; the row number ``start_with`` has the first turn."""
        start = start_with % len(self._rows)
        for row in [*self._rows[start:], *self._rows[:start]]:
            worker = self._workers.get(row.toolkit)
            if worker is None or row.toolkit.name in self._failures:
                continue
            try:
                answer = worker.turn(row.variant, first, count)
            except WorkerError as error:
                self._failures[row.toolkit.name] = str(error)
            else:
                self.steps.setdefault(row, []).append(answer)


def _figures(answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    counted = [answer["steps"][1:] for answer in answers]
    rates = [rate_of(steps) for steps in counted]
    seconds = sum(step["seconds"] for steps in counted for step in steps)
    waited = sum(step["wait_seconds"] for steps in counted for step in steps)
    return {
        "rate": median(rates),
        "rates": rates,
        "cpu_rate": median(rate_of(steps, "cpu_seconds") for steps in counted),
        "wait_share": waited / seconds,
        "memory": answers[-1]["memory"],
    }


def rate_of(steps: Sequence[dict[str, Any]], key: str = "seconds") -> float:
    """Return real target tokens a second of these steps; ``cpu_seconds`` are those of the CPU."""
    seconds = sum(step[key] for step in steps) or 1 / TICKS  # a short step may have no CPU time
    return sum(step["target_tokens"] for step in steps) / seconds
