"""Names a line that takes long by itself, while it does."""

import time
from collections.abc import Callable, Iterable

from nmt_cli.messages import logs
from nmt_cli.messages.figures import counted
from nmt_cli.translating.line_jobs import Job, Ticket

FIRST_REPORT_SECONDS, SECONDS_BETWEEN_LOOKS = 10.0, 0.5


class SlowLines:
    """Reports a line when nothing but its sentences was searched for 10 s, 20 s, 40 s ...

    One object is for the lines that are translated together.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._job: Job | None = None
        self._since = self._next_look = clock()
        self._next_report = FIRST_REPORT_SECONDS

    def look(self, inside: Iterable[Ticket]) -> None:
        """Report a line if it is due; call it after each step with what is in the search."""
        now = self._clock()
        if now < self._next_look:
            return
        self._next_look = now + SECONDS_BETWEEN_LOOKS
        jobs = {job for job, _ in inside}
        job = jobs.pop() if len(jobs) == 1 else None
        if job is None or job is not self._job:
            self._job, self._since, self._next_report = job, now, FIRST_REPORT_SECONDS
        elif now - self._since >= self._next_report:
            self._next_report *= 2
            logs.info(f"{_described(job)} takes long, {now - self._since:.0f} s by itself so far.")


def _described(job: Job) -> str:
    sentences = {tuple(each.tokens) for each in job.sentences}  # not each sample
    pieces = counted(sum(map(len, sentences)), "piece")
    parts = f" in {len(sentences):,} parts" if len(sentences) > 1 else ""
    return f"line {job.wanted.line:,} with {pieces}{parts}"
