"""Asks a language model for all lines: many requests at the same time, fewer if it is busy."""

import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass

from nmt_cli.commands.distilling.distillation import TeacherServer
from nmt_cli.commands.distilling.language_model.answer_store import FIRST_LINES, AnswerStore
from nmt_cli.commands.distilling.language_model.answers import Checks, translations_in
from nmt_cli.commands.distilling.language_model.chat_client import Answer, BusyError, ChatClient
from nmt_cli.commands.distilling.language_model.prompts import SourceLine
from nmt_cli.messages import logs
from nmt_cli.messages.errors import InterruptedTrainingError, UserError
from nmt_cli.messages.figures import counted

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds; each is twice as long as the one before
LEAST_SHOWN_PAUSE = 4.0
FIRST_CONTACTS = 4  # attempts to reach a server that has not answered yet
PATIENCE_SECONDS = 900.0  # a server that loads a large model again needs minutes
MOST_FAILURES = 5  # of one request, while others are answered: its lines may break the server
MOST_LEFT_OUT = 0.2  # of the first lines


@dataclass
class Batch:
    """The lines of one request."""

    checks: Checks
    lines: list[SourceLine]
    number: int = 0  # of its request; 0: not asked yet
    num_failures: int = 0  # of the server


class Pace:
    """How many requests run at the same time, and when the next may start."""

    def __init__(self, most: int) -> None:
        self._most, self._pause, self._resume_at = most, FIRST_PAUSE, 0.0
        self.limit = 1.0  # until the first answer
        self.has_answered, self.num_failures = False, 0  # since the last answer
        self._waits_since = time.monotonic()  # the last answer, or the start

    def answered(self) -> None:
        """Count an answer: the limit rises by one in as many answers as it allows requests."""
        self.limit = min(self._most, self.limit + 1 / self.limit)
        if not self.has_answered:
            self.limit, self.has_answered = self._most, True
        self._pause, self.num_failures, self._waits_since = FIRST_PAUSE, 0, time.monotonic()

    def busy(self, error: BusyError) -> None:
        """Wait, and halve the limit, once for all requests that fail in the same pause."""
        now, wait = time.monotonic(), error.wait
        self.num_failures += 1
        if now >= self._resume_at:
            self.limit = max(1.0, self.limit / 2)
            if wait is None:
                wait, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)
        if error.wait is not None:
            self._waits_since = max(self._waits_since, now + error.wait)  # it is worth waiting
        if wait is not None and now + wait > self._resume_at:
            self._resume_at = now + wait
            if wait >= LEAST_SHOWN_PAUSE:
                logs.info(f"The server is asked again in {wait:.0f} s, because {error}.")

    def seconds_left(self) -> float:
        """Return how long no request may start."""
        return max(0.0, self._resume_at - time.monotonic())

    def is_given_up(self, error: BusyError) -> bool:
        """Return whether a server has not answered for too long."""
        if not self.has_answered and not error.is_overload:
            return self.num_failures >= FIRST_CONTACTS
        return time.monotonic() - self._waits_since > PATIENCE_SECONDS


class Asking:
    """Asks for batches of lines until all are in the store. Used once, by one thread."""

    def __init__(
        self, client: ChatClient, store: AnswerStore, server: TeacherServer, total: int
    ) -> None:
        """``total`` is how many lines there are, with those that are done."""
        self._client, self._store, self._server, self._total = client, store, server, total
        self._pace = Pace(server.concurrency)
        self._again: deque[Batch] = deque()  # the server was busy, or a line is asked alone
        self._finished: queue.SimpleQueue[tuple[Batch, Answer | Exception]] = queue.SimpleQueue()
        self._num_running = 0
        self._why_ended: UserError | None = None

    def run(self, batches: Iterator[Batch], counter: logs.ProgressBar) -> None:
        """Ask for all batches. What is answered is stored before an error is raised.

        Raises UserError if the model or the server is of no use, InterruptedTrainingError at
        --max-cost.
        """
        self._end_if_many_fail()
        while self._start_more(batches) or self._num_running:
            pause = self._pace.seconds_left()
            try:
                # Without a pause, a request is running, or the next may start at once.
                wait = pause or (None if self._num_running else 0)
                batch, outcome = self._finished.get(timeout=wait)
            except queue.Empty:
                continue
            self._num_running -= 1
            if isinstance(outcome, BusyError):
                num_done = self._repeat(batch, outcome)
            elif isinstance(outcome, UserError):
                num_done, self._why_ended = 0, self._why_ended or outcome
            elif isinstance(outcome, Exception):
                raise outcome
            else:
                num_done = self._stored(batch, outcome)
            counter.advance(num_done, self._notes())
        if self._why_ended is not None:
            raise self._why_ended

    def _start_more(self, batches: Iterator[Batch]) -> bool:
        """Start what may start now; return whether there is more to do."""
        while self._why_ended is None:
            if self._pace.seconds_left() or self._num_running >= int(self._pace.limit):
                return True
            batch = self._again.popleft() if self._again else next(batches, None)
            if batch is None:
                return False
            self._end_if_too_dear()
            if self._why_ended is None:
                self._start(batch)
        return False

    def _start(self, batch: Batch) -> None:
        if not batch.number:
            self._store.num_requests += 1
            batch.number = self._store.num_requests
        message = batch.checks.prompt.message(batch.lines)

        def ask() -> None:
            try:
                self._finished.put((batch, self._client.ask(message, len(batch.lines))))
            except Exception as error:
                self._finished.put((batch, error))

        # Not an executor: the end of the program would wait for its threads, also after Ctrl-C.
        threading.Thread(target=ask, daemon=True).start()
        self._num_running += 1

    def _stored(self, batch: Batch, answer: Answer) -> int:
        """Store what became of each line; return how many are done with that."""
        if answer.is_refused and not self._pace.has_answered:
            return self._end(
                f"{self._client.url} does not take the first request: {answer.problem}"
            )
        self._pace.answered()
        if answer.problem is None and answer.usage is None and self._server.max_cost is not None:
            self._end(
                f"--max-cost needs a server that counts tokens, but {self._client.url} reports no "
                "usage; leave it out."
            )
        texts = translations_in(answer, len(batch.lines))
        pairs = zip(batch.lines, texts, strict=True)
        records = [batch.checks.record_of(line, text) for line, text in pairs]
        self._store.add(batch.number, answer.usage, records)
        alone = [line for line in batch.lines if not self._store.is_done(line.key)]
        self._again += [Batch(batch.checks, [line]) for line in alone]
        self._end_if_many_fail()
        return len(batch.lines) - len(alone)

    def _repeat(self, batch: Batch, error: BusyError) -> int:
        self._pace.busy(error)
        batch.num_failures += not error.is_overload
        if self._pace.is_given_up(error):
            return self._end(f"{self._client.url} does not answer: {error}.")
        if MOST_FAILURES <= batch.num_failures > self._pace.num_failures:
            return self._stored(batch, Answer("", problem=f"no answer, because {error}"))
        self._again.append(batch)
        return 0

    def _end(self, why: str) -> int:
        self._why_ended = self._why_ended or UserError(why)
        return 0

    def _end_if_many_fail(self) -> None:
        first = self._store.first_failures
        reasons = Counter(reason for reason in first if reason is not None)
        if reasons.total() > MOST_LEFT_OUT * min(FIRST_LINES, self._total):
            self._end(
                f"{reasons.total():,} of the first {counted(len(first), 'line')} failed "
                f"({shown_reasons(reasons)}). {'; '.join(self._store.examples)}. Choose another "
                "distillation.teacher.model or prompt."
            )

    def _end_if_too_dear(self) -> None:
        """End if one more request could pass --max-cost, as dear as the dearest one so far."""
        if (most := self._server.max_cost) is None:
            return
        spent = self._server.cost_of(*self._store.spent)
        if spent + self._server.cost_of(*self._store.dearest) * (self._num_running + 1) > most:
            self._why_ended = self._why_ended or InterruptedTrainingError(
                f"teach: the next request could pass --max-cost {most:g}: the answers so far cost "
                f"{spent:.4g}. They are stored; the same command with a higher --max-cost goes on."
            )

    def _notes(self) -> str:
        spent, num_done = self._store.spent, len(self._store.texts)
        notes = f"{spent.prompt:,} + {spent.completion:,} tokens"
        if self._server.prices is not None:
            cost = self._server.cost_of(*spent)
            notes += f", cost {cost:,.2f}"
            notes += f" of about {cost * self._total / num_done:,.2f}" if num_done else ""
        return notes


def shown_reasons(reasons: Counter[str]) -> str:
    """Return how often there is each reason, the most frequent first."""
    return ", ".join(f"{number:,} {reason}" for reason, number in reasons.most_common())
