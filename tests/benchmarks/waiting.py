"""How training in bf16 or fp32 keeps its speed beside other programs, by how its threads wait."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

from nmt_cli.thread_waiting import BRIEF_SPINNING
from tests.benchmarks.processes import Worker
from tests.benchmarks.speed import rate_of

# A variable that libgomp ignores keeps its default, because the user seems to have chosen.
POLICIES: dict[str, dict[str, str]] = {
    "OpenMP's default": {},
    "brief spinning": BRIEF_SPINNING,
    "passive": {"OMP_WAIT_POLICY": "passive"},
}
WARM_UP, COUNTED, ROUNDS = 3, 6, 3

OpenWorker = Callable[[Mapping[str, str]], Worker]


def measure(open_worker: OpenWorker, variant: str) -> dict[str, dict[str, list[float]]]:
    """Return {policy: {situation: tokens a second}}, one number for each round.

    Situations are a quiet machine, one busy process beside, and two such trainings at once, of
    which the rate of the slower one is returned.
    """
    rates: dict[str, dict[str, list[float]]] = {}
    with ExitStack() as stack:
        pairs = {
            policy: [stack.enter_context(open_worker(variables)) for _ in range(2)]
            for policy, variables in POLICIES.items()
        }
        for round_ in range(ROUNDS):
            first = round_ * (WARM_UP + COUNTED)
            for policy, (worker, second) in pairs.items():
                of_policy = rates.setdefault(policy, {})
                quiet = _rate(worker.turn(variant, first, WARM_UP + COUNTED))
                with _busy_process():
                    beside = _rate(worker.turn(variant, first, WARM_UP + COUNTED))
                both = _both([worker, second], variant, first)
                of_policy.setdefault("quiet", []).append(quiet)
                of_policy.setdefault("beside one busy process", []).append(beside)
                of_policy.setdefault("two at once, each", []).append(both)
    return rates


def _rate(answer: Mapping[str, Any]) -> float:
    return rate_of(answer["steps"][WARM_UP:])


def _both(workers: Sequence[Worker], variant: str, first: int) -> float:
    with ThreadPoolExecutor(len(workers)) as pool:
        answers = pool.map(lambda w: w.turn(variant, first, WARM_UP + COUNTED), workers)
        return min(map(_rate, answers))


@contextmanager
def _busy_process() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()
