"""How training in bf16 or fp32 keeps its speed beside other programs, by how its threads wait."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

from nmt_cli.hardware.cpu import SPINS
from tests.benchmarks.processes import Worker
from tests.benchmarks.speed import rate_of

POLICIES: dict[str, dict[str, str]] = {
    "OpenMP's default": {},
    "8,000 spins": SPINS,  # what training chooses
    "100 spins": {"GOMP_SPINCOUNT": "100"},
    "active": {"OMP_WAIT_POLICY": "active"},
}
WARM_UP, COUNTED, ROUNDS = 8, 6, 3

OpenWorker = Callable[[Mapping[str, str]], Worker]


def measure(open_worker: OpenWorker, variant: str) -> dict[str, dict[str, list[float]]]:
    """Return {policy: {situation: tokens a second}}, one number for each round.

    Situations are a quiet machine, one busy process beside, and two such trainings at once, of
    which the rate of the slower one is returned.
    """
    rates: dict[str, dict[str, list[float]]] = {}
    with ExitStack() as stack:
        pairs = {
            policy: [_Training(stack.enter_context(open_worker(variables)), variant) for _ in "ab"]
            for policy, variables in POLICIES.items()
        }
        for _ in range(ROUNDS):
            for policy, pair in pairs.items():
                of_policy = rates.setdefault(policy, {})
                of_policy.setdefault("quiet", []).append(pair[0].rate())
                with _busy_process():
                    of_policy.setdefault("beside one busy process", []).append(pair[0].rate())
                with ThreadPoolExecutor(len(pair)) as pool:
                    slower = min(pool.map(_Training.rate, pair))
                of_policy.setdefault("two at once, each", []).append(slower)
    return rates


class _Training:
    """A training that goes on from turn to turn."""

    def __init__(self, worker: Worker, variant: str) -> None:
        self._worker, self._variant, self._next = worker, variant, 0
        worker.pause()

    def rate(self) -> float:
        """Train on the next batches; return tokens a second behind the warm-up."""
        self._worker.go_on()
        answer = self._worker.turn(self._variant, self._next, WARM_UP + COUNTED)
        self._worker.pause()
        self._next += WARM_UP + COUNTED
        return rate_of(answer["steps"][WARM_UP:])


@contextmanager
def _busy_process() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()
