"""A process that translates, as the event loop of the command sees it, and its lines."""

from __future__ import annotations

import asyncio
import pickle
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from nmt_cli.messages import logs
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.interface.translation import Translation
from nmt_cli.translating.workers import messages
from nmt_cli.translating.workers.messages import AttentionOf, WorkerBugError

BUG = "it met a bug; the log of the server has its traceback"
MOST_OF_A_SMALL_BATCH = 8  # lines
SILENT_LOOKS = 5  # without an answer, until a worker counts as silent
LENGTH = struct.Struct("!i")  # in front of a message, as multiprocessing.Connection has it


class Batch:
    """The lines of one request or of a part of a text; the longest are translated first."""

    def __init__(self, requests: Sequence[Request | AttentionOf], name: str = "") -> None:
        """``name`` is what the log calls the batch; "": it is a part of a text."""
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
        """Note what became of a line; a bug of a request is logged, and the line gets an error."""
        if isinstance(answer, WorkerBugError) and self.name:
            logs.warning(f"{BatchLine(self, place)} met a bug {answer}")
            answer = Translation(error=BUG)
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
        """Return what the log calls a line of a request."""
        place, number = self.place + 1, len(self.batch.requests)
        return f"{self.batch.name}: line {place:,} of {number:,}"


def _shared(requests: Sequence[Request | AttentionOf]) -> Request | None:
    """Return the constraints and options of lines, if they have phrases and all have the same."""
    first = requests[0] if len(requests) > 1 else None
    if not isinstance(first, Request) or first.own_rules is None:
        return None
    shared = first._replace(text="", line=None)
    return shared if all(each[2:] == shared[2:] for each in requests) else None


class MostLines(NamedTuple):
    """How many lines a worker has at most, and how many of one batch if there are several."""

    of_all: int
    of_a_batch: int


# By the device. A search on a CPU takes 128 short sentences. In a service the rest of a batch waits
# in the command, so that it can still be given to any worker, and so that a short line is not
# searched beside many of a long batch (``continuous_search.MOST_DIVIDED`` has what that costs).
LINES_OF_A_SERVICE = {"cpu": MostLines(128, 24), "cuda": MostLines(512, 384)}
# A text keeps the searches full while the command writes its output.
LINES_OF_A_TEXT = {"cpu": MostLines(192, 192), "cuda": MostLines(1024, 1024)}


class WorkerProcess(asyncio.Protocol):
    """A worker process; it is starting until it has sent its first message.

    This is the end of its connection that never blocks; the worker has a ``Connection``.
    """

    def __init__(
        self,
        number: int,
        process: int,
        hear: Callable[[WorkerProcess, Sequence[Any] | None], None],
        is_text: bool,
    ) -> None:
        """``hear`` gets the messages that have come, or None when the worker has died.

        ``is_text``: its lines are those of a text.
        """
        self.number, self.process, self._hear = number, process, hear
        self._most = LINES_OF_A_TEXT if is_text else LINES_OF_A_SERVICE
        self._transport: asyncio.WriteTransport | None = None
        self._received = bytearray()
        self._outgoing: list[tuple[int, Any]] = []  # sent by ``_send_all``
        self._shared: dict[Batch, int] = {}  # the number under which it has what lines share
        # By the numbers under which they were sent; withdrawn ones until it has confirmed that.
        self.lines: dict[int, BatchLine] = {}
        self.is_starting = True
        self.has_suspects = False  # and no other lines
        self.silent_looks = 0  # in a row, since the worker was asked and has sent nothing
        self._is_asked = False
        self.device = "cpu"
        self.busy_since: float | None = None

    @property
    def is_silent(self) -> bool:
        """Whether it has not answered for a while."""
        return self.silent_looks >= SILENT_LOOKS

    def look(self) -> None:
        """Ask for a message if the worker has lines; count the looks until one comes.

        A worker that is well exchanges messages at each step of its search.
        """
        if self._is_asked:
            self.silent_looks += 1
        elif self.lines:
            self._is_asked = True
            self.send(messages.NO_LINE, None)

    @property
    def is_free(self) -> bool:
        """Whether it may get lines."""
        return not (self.is_starting or self.is_silent)

    @property
    def is_full(self) -> bool:
        """Whether it has as many lines as it may have."""
        return len(self.lines) >= self._most[self.device].of_all

    def has_room(self, batch: Batch) -> bool:
        """Return whether it may get a line of ``batch``, if it is not full."""
        most = self._most[self.device].of_a_batch
        if len(self.lines) < most:
            return True
        return sum(line.batch is batch for line in self.lines.values()) < most

    def give(self, number: int, line: BatchLine) -> None:
        """Let it have a line; before the first one of a batch it gets what all of them share."""
        self.lines[number] = line
        batch, request = line.batch, line.batch.requests[line.place]
        if isinstance(request, messages.AttentionOf):
            self.send(number, request)
        else:
            given = request if batch.shared is None else self._text_of(number, batch, request)
            self.send(number, messages.OneOfMany(given) if batch.is_large else given)

    def _text_of(self, number: int, batch: Batch, request: Request) -> messages.TextOf:
        """Return a line as its text; the worker gets what it shares with others before."""
        if batch not in self._shared:
            self._shared[batch] = -number
            assert batch.shared is not None
            self.send(-number, messages.Shared(batch.shared))
            batch.done.add_done_callback(lambda _: self.send(self._shared.pop(batch), None))
        return messages.TextOf(self._shared[batch], request.text, request.line)

    def send(self, number: int, request: messages.ToWorker) -> None:
        """Send a line, or None to withdraw it; nobody gets it if the worker has died.

        What is sent in one turn of the event loop is one message, so that the worker wakes once.
        """
        if not self._outgoing:
            asyncio.get_running_loop().call_soon(self._send_all)
        self._outgoing.append((number, request))

    def _send_all(self) -> None:
        assert self._transport is not None
        outgoing, self._outgoing = self._outgoing, []
        if not self._transport.is_closing():
            data = pickle.dumps(outgoing)
            self._transport.write(LENGTH.pack(len(data)) + data)

    def close(self) -> None:
        """Close the connection, so that the worker ends; nothing is heard of it any more."""
        self._hear = lambda _, __: None
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep what writes."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Take messages from what has come so far."""
        self._received += data
        messages, place = [], 0
        while len(self._received) >= place + LENGTH.size:
            begin = place + LENGTH.size
            end = begin + LENGTH.unpack_from(self._received, place)[0]
            if len(self._received) < end:
                break
            messages.append(pickle.loads(memoryview(self._received)[begin:end]))
            place = end
        del self._received[:place]
        if messages:
            self._is_asked, self.silent_looks = False, 0
            self._hear(self, messages)

    def connection_lost(self, _: Exception | None) -> None:
        """Report that the worker has died."""
        self._hear(self, None)
