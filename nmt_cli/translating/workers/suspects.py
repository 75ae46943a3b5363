"""Lines with which workers have died: halving finds those that make their worker die."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from nmt_cli.translating.workers.batch import BatchLine
from nmt_cli.translating.workers.worker_process import WorkerProcess

DEATHS_OF_A_SUSPECT = 2  # of workers with the same line


class Suspects:
    """Groups of lines that are tested one after another, by one worker.

    The worker has no other lines meanwhile, and the other workers go on with these. If there is no
    other worker, other lines have their turn after each test. A group with which the worker dies is
    halved; a line that is alone then is guilty.
    """

    def __init__(self, *, has_other_workers: bool) -> None:
        self.tester: int | None = None  # the number of the worker, while there are groups
        self._groups: deque[list[BatchLine]] = deque()
        self._has_other_workers = has_other_workers
        self._is_turn_of_others = False

    def left_by(
        self, dead: WorkerProcess, lines: Sequence[BatchLine]
    ) -> tuple[list[BatchLine], list[BatchLine]]:
        """Take what is to be tested of the lines of a worker that has died.

        Return those to be given to any worker, and those with which workers die when they are
        alone.
        """
        lines = [line._replace(deaths=line.deaths + 1) for line in lines]
        self._is_turn_of_others = dead.has_suspects and not self._has_other_workers
        if dead.has_suspects and len(lines) == 1:
            return [], lines
        suspects = [line for line in lines if line.deaths >= DEATHS_OF_A_SUSPECT]
        half = (len(suspects) + 1) // 2
        self._groups.extendleft(part for part in (suspects[half:], suspects[:half]) if part)
        if suspects and self.tester is None:
            self.tester = dead.number  # its successor has no lines yet
        return [line for line in lines if line.deaths < DEATHS_OF_A_SUSPECT], []

    def allows(self, worker: WorkerProcess) -> bool:
        """Return whether ``worker`` may get lines that are no suspects."""
        is_tester = worker.number == self.tester
        return not worker.has_suspects and (self._is_turn_of_others or not is_tester)

    def end_turn(self, workers: Sequence[WorkerProcess]) -> None:
        """Let the tester get no further lines if it got some when it was their turn."""
        if any(each.number == self.tester and each.lines for each in workers):
            self._is_turn_of_others = False

    def next_test(
        self, workers: Sequence[WorkerProcess], *, others_wait: bool
    ) -> Sequence[BatchLine]:
        """Return the lines that the tester of ``workers`` gets now, if it can begin a test."""
        wanted = ([line for line in group if line.is_wanted] for group in self._groups)
        self._groups = deque(group for group in wanted if group)
        worker = next((each for each in workers if each.number == self.tester), None)
        if worker is not None and worker.has_suspects and not worker.lines:
            worker.has_suspects, self._is_turn_of_others = False, not self._has_other_workers
        if not self._groups:
            self.tester = self.tester if worker is not None and worker.has_suspects else None
            return []
        if self._is_turn_of_others and others_wait:
            return []
        if worker is None or not worker.is_free or worker.lines:
            return []
        worker.has_suspects, self._is_turn_of_others = True, False
        return self._groups.popleft()
