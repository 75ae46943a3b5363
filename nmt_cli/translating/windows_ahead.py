"""Windows of lines that CTranslate2 gets while it translates the previous window."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from nmt_cli.interchange.ctranslate2.sentence_driver import Batch, CTranslate2Driver
from nmt_cli.messages.errors import LinesFailedError
from nmt_cli.search.sentences import BugError
from nmt_cli.translating.line_jobs import LineJob, LineJobs, Ticket, longest_first
from nmt_cli.translating.request import Request, numbered
from nmt_cli.translating.translation import Translation

MOST_AHEAD = 1  # windows that wait while one is translated and one is prepared


class _Begun(NamedTuple):
    """A window whose sentences CTranslate2 has; without jobs if preparing them met a bug."""

    requests: Sequence[Request]
    jobs: Sequence[LineJob] | None = None
    batches: Sequence[Batch] = ()


class WindowsAhead:
    """Reads windows in a thread of its own, and lets CTranslate2 begin with them."""

    def __init__(
        self,
        jobs: LineJobs,
        driver: CTranslate2Driver[Ticket],
        windows: Iterator[Sequence[str | Request]],
    ) -> None:
        self._jobs, self._driver, self._windows = jobs, driver, windows
        # None at the end; an error of ``windows`` comes after the windows before it.
        self._begun: queue.Queue[_Begun | BaseException | None] = queue.Queue(MOST_AHEAD)
        self._is_stopped = False

    def translated(
        self, alone: Callable[[Sequence[Request]], list[Translation]]
    ) -> Iterator[list[Translation]]:
        """Yield the translations of each window; ``alone`` translates one in which a bug is met."""
        # A daemon thread does not keep the process alive while it waits for input.
        threading.Thread(target=self._read, daemon=True).start()
        try:
            while (begun := self._begun.get()) is not None:
                if isinstance(begun, BaseException):
                    raise begun
                yield self._finished(begun) or alone(begun.requests)
        finally:
            self._is_stopped = True
            while not self._begun.empty():  # the thread may wait for room
                self._begun.get_nowait()

    def _read(self) -> None:
        try:
            for window in self._windows:
                self._begun.put(self._begin(list(numbered(window))))
                if self._is_stopped:
                    return
            self._begun.put(None)
        except BaseException as error:
            self._begun.put(error)

    def _begin(self, requests: Sequence[Request]) -> _Begun:
        try:
            jobs = self._jobs.prepare(requests)
        except LinesFailedError:
            return _Begun(requests)
        entries = longest_first(entry for job in jobs for entry in job.entries())
        return _Begun(requests, jobs, self._driver.begin(entries))

    def _finished(self, begun: _Begun) -> list[Translation] | None:
        """Return the translations of a window; None if a bug was met."""
        if begun.jobs is None:
            return None
        try:
            for ticket, outcome in self._driver.outcomes(begun.batches):
                self._jobs.put(ticket, outcome)
            return self._jobs.answers(begun.jobs)
        except (BugError, LinesFailedError):
            return None
