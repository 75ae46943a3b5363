"""A process that translates, as the event loop of the HTTP process sees it, and its lines."""

from __future__ import annotations

import asyncio
import pickle
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from nmt_cli.serving.requests import REQUEST_ID
from nmt_cli.translating.request import Request
from nmt_cli.translating.translation import Translation
from nmt_cli.translating.workers.messages import NO_LINE, AttentionOf, Shared, TextOf

# Lines that a worker has at one time: as many as its search takes, so that the rest can still be
# given to any worker, and a short request need not wait behind all lines of a long one.
LINES_OF_A_WORKER = {"cpu": 128, "cuda": 512}
DEATHS_UNTIL_ALONE = 2  # of workers with the same line, until it is translated alone
SILENT_LOOKS = 5  # without an answer, until a worker counts as silent
LENGTH = struct.Struct("!i")  # in front of a message, as multiprocessing.Connection has it


class Batch:
    """The lines of one request, and their translations so far."""

    def __init__(self, requests: Sequence[Request | AttentionOf]) -> None:
        self.requests, self.request_id = requests, REQUEST_ID.get()
        self.shared = _shared(requests)  # None: each line is sent as a whole
        self.translations: list[Translation | None] = [None] * len(requests)
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.num_taken = self.num_answered = 0
        if not requests:
            self.done.set_result(None)

    @property
    def has_waiting(self) -> bool:
        """Whether lines of it wait that no worker has had."""
        return self.num_taken < len(self.requests) and not self.done.done()

    def found(self) -> list[Translation]:
        """Return the translation of each line, in order; the batch is done."""
        return [translation for translation in self.translations if translation is not None]

    def answer(self, place: int, translation: Translation) -> None:
        """Note the translation of a line."""
        self.translations[place] = translation
        self.num_answered += 1
        if self.num_answered == len(self.requests) and not self.done.done():
            self.done.set_result(None)


def _shared(requests: Sequence[Request | AttentionOf]) -> Request | None:
    """Return the phrases and other wishes of lines, if there are any and all lines have them."""
    first = requests[0] if len(requests) > 1 else None
    if not isinstance(first, Request) or first.own_rules is None:
        return None
    wishes = first._replace(text="")
    return wishes if all(each[1:] == wishes[1:] for each in requests) else None


class Line(NamedTuple):
    """A line of a batch; ``deaths`` counts the workers that died while they had it."""

    batch: Batch
    place: int
    deaths: int = 0

    def __str__(self) -> str:
        """Return what the log calls it."""
        place, number = self.place + 1, len(self.batch.requests)
        return f"request {self.batch.request_id}: line {place:,} of {number:,}"

    @property
    def is_alone(self) -> bool:
        """Whether no other line may be translated beside it."""
        return self.deaths >= DEATHS_UNTIL_ALONE


class Worker(asyncio.Protocol):
    """A worker process; it is starting until it has sent its first message.

    This is the end of its connection that never blocks; the worker has a ``Connection``.
    """

    def __init__(
        self, number: int, process: int, hear: Callable[[Worker, Sequence[Any] | None], None]
    ) -> None:
        """``hear`` gets the messages that have come, or None when the worker has died."""
        self.number, self.process, self._hear = number, process, hear
        self._transport: asyncio.WriteTransport | None = None
        self._received = bytearray()
        self._outgoing: list[tuple[int, Any]] = []  # sent by ``_send_all``
        self._shared: dict[Batch, int] = {}  # the number under which it has what lines share
        # By the numbers under which they were sent; withdrawn ones until it has confirmed that.
        self.lines: dict[int, Line] = {}
        self.is_starting = True
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
            self.send(NO_LINE, None)

    def has_room(self, line: Line | None) -> bool:
        """Return whether it may get ``line``, or any new line if that is None."""
        if self.is_starting or self.is_silent:
            return False
        if len(self.lines) == 1 and next(iter(self.lines.values())).is_alone:
            return False
        if line is not None and line.is_alone:
            return not self.lines
        return len(self.lines) < LINES_OF_A_WORKER[self.device]

    def give(self, number: int, line: Line) -> None:
        """Let it have a line; before the first one of a batch it gets what all of them share."""
        self.lines[number] = line
        batch, request = line.batch, line.batch.requests[line.place]
        if batch.shared is None or isinstance(request, AttentionOf):
            self.send(number, request)
            return
        if batch not in self._shared:
            self._shared[batch] = -number
            self.send(-number, Shared(batch.shared))
            batch.done.add_done_callback(lambda _: self.send(self._shared.pop(batch), None))
        self.send(number, TextOf(self._shared[batch], request.text))

    def send(self, number: int, request: Request | AttentionOf | Shared | TextOf | None) -> None:
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
