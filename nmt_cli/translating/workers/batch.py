"""Lines that are translated together by several workers, and their translations so far."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from nmt_cli.translating.request import Request
from nmt_cli.translating.translation import Translation
from nmt_cli.translating.workers.messages import AttentionOf, WorkerBugError

MOST_OF_A_SMALL_BATCH = 8  # lines


class Batch:
    """The lines of one request or of a part of a text; the longest are translated first."""

    def __init__(self, requests: Sequence[Request | AttentionOf], name: str = "") -> None:
        """``name`` is what the log calls the batch."""
        self.requests, self.name = requests, name
        self.shared = _shared(requests)  # None: each line is sent as a whole
        self.answers: list[Translation | WorkerBugError | None] = [None] * len(requests)
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._num_answered = 0
        self.is_large = len(requests) > MOST_OF_A_SMALL_BATCH
        lines = [BatchLine(self, place) for place in range(len(requests))]
        # Those that no worker has; the next one is the last.
        self._waiting = sorted(lines, key=lambda line: (len(line.text), -line.place))
        if not requests:
            self.done.set_result(None)

    @property
    def num_waiting(self) -> int:
        """How many of its lines no worker has."""
        return 0 if self.done.done() else len(self._waiting)

    def take(self) -> BatchLine:
        """Return its next line."""
        return self._waiting.pop()

    def put_back(self, line: BatchLine) -> None:
        """Let a line wait again whose worker has died."""
        self._waiting.append(line)

    def answer(self, place: int, answer: Translation | WorkerBugError) -> None:
        """Note what became of a line."""
        self.answers[place] = answer
        self._num_answered += 1
        if self._num_answered == len(self.requests) and not self.done.done():
            self.done.set_result(None)


class BatchLine(NamedTuple):
    """A line of a batch; ``deaths`` counts the workers that died while they had it."""

    batch: Batch
    place: int
    deaths: int = 0

    @property
    def text(self) -> str:
        """The text that is translated."""
        return self.batch.requests[self.place].text

    @property
    def is_wanted(self) -> bool:
        """Whether anybody waits for its translation."""
        return not self.batch.done.done()

    def __str__(self) -> str:
        """Return what the log calls it."""
        if not self.batch.name:  # it is part of a text
            return f"line {getattr(self.batch.requests[self.place], 'line', None):,}"
        place, number = self.place + 1, len(self.batch.requests)
        return f"{self.batch.name}: line {place:,} of {number:,}"


def _shared(requests: Sequence[Request | AttentionOf]) -> Request | None:
    """Return the phrases and other wishes of lines, if there are any and all lines have them."""
    first = requests[0] if len(requests) > 1 else None
    if not isinstance(first, Request) or first.own_rules is None:
        return None
    wishes = first._replace(text="", line=None)
    return wishes if all(each[2:] == wishes[2:] for each in requests) else None
