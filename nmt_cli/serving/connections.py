"""Connections of clients, and their limits: number, bytes before a body, and unread answers."""

from __future__ import annotations

import asyncio
import json
import resource
from http import HTTPStatus
from typing import ClassVar

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from nmt_cli.hardware.memory import return_freed_memory
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError

MOST_CONNECTIONS = 10_000
MOST_HEAD_BYTES = 1 << 16  # some clients send a text in the query
MOST_HEADERS = 100
MOST_WAITING = 16  # requests that a client sends before the answer of an earlier one
MOST_UNREAD_BYTES = 1 << 28  # of answers that clients have not read, in all connections
UNREAD_SHARE = 3 / 4  # of these that are left when some of the answers are given up
SECONDS_BETWEEN_WARNINGS = 60.0
# What the connections below use of uvicorn beside asyncio's callbacks and httptools'. It documents
# none of it, so it is looked for at the start: 0.30 to 0.54 have all.
OF_UVICORN = (
    *("connections", "headers", "loop", "parser", "pipeline", "transport"),
    *("on_response_complete", "send_400_response"),
)


def allow_many_files() -> None:
    """Raise the limit of open files as far as is allowed: each connection is a file."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _most_files() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def most_connections() -> int:
    """Return how many connections may be open."""
    return min(MOST_CONNECTIONS, _most_files() // 2)


def most_accepted() -> int:
    """Return how many connections asyncio may accept in one turn of the event loop.

    Three turns pass until a connection that is refused is closed, so those in between take three
    eighths of the files. Beside the connections, an eighth is left for workers.
    """
    return min(2048, _most_files() // 8)


def refuse_unknown_uvicorn(config: uvicorn.Config) -> None:
    """Raise UserError if this version of uvicorn lacks what connections need of it."""
    connection = Connection(config, ServerState(), {}, asyncio.get_running_loop())
    if missing := [name for name in OF_UVICORN if not hasattr(connection, name)]:
        raise UserError(
            f"uvicorn {uvicorn.__version__} has no {' and no '.join(missing)} in its connections, "
            "which this version of nmt-cli needs; run: pip install 'uvicorn>=0.30,<=0.54'"
        )


class _RefusedError(Exception):
    """Ends the reading of a request."""


class _UnreadAnswers:
    """The connections of a process whose clients have not read what was written, oldest first.

    A document that is kept may be fetched by any number of clients at a time. If more than
    MOST_UNREAD_BYTES wait, the connections that have waited for longest are closed.
    """

    def __init__(self) -> None:
        self._sizes: dict[Connection, int] = {}
        self._num_bytes = 0  # at most; what was read since is not subtracted
        self._last_warning: float | None = None

    def add(self, connection: Connection) -> None:
        """Add a connection, whose answer has been written."""
        size = self._sizes[connection] = connection.transport.get_write_buffer_size()
        self._num_bytes += size
        if self._num_bytes > MOST_UNREAD_BYTES:
            self._sizes = {each: each.transport.get_write_buffer_size() for each in self._sizes}
            self._num_bytes = sum(self._sizes.values())
        if self._num_bytes > MOST_UNREAD_BYTES:
            self._close_oldest(connection)

    def discard(self, connection: Connection) -> None:
        """Leave out a connection, if it is among them."""
        self._num_bytes -= self._sizes.pop(connection, 0)

    def _close_oldest(self, newest: Connection) -> None:
        for connection in list(self._sizes):
            if self._num_bytes <= UNREAD_SHARE * MOST_UNREAD_BYTES or connection is newest:
                break
            self.discard(connection)
            connection.transport.abort()
        return_freed_memory()  # malloc does not use all of it for the next answers
        now, last = newest.loop.time(), self._last_warning
        if last is None or now - last > SECONDS_BETWEEN_WARNINGS:
            self._last_warning = now
            logs.warning(
                f"answers of more than {MOST_UNREAD_BYTES:,} bytes wait for clients that do not "
                "read them; connections are closed, those that have waited for longest first."
            )


class Connection(HttpToolsProtocol):
    """A connection, which is refused if there are too many.

    It is closed if a head with its trailers, or anything between two parts of a body, is too large.
    """

    _last_warning: ClassVar[float | None] = None
    _unread_answers: ClassVar = _UnreadAnswers()
    _unread = 0  # bytes since the end of a head, a part of a body or a request
    _head_bytes = 0  # of the head and the trailers of a request
    _is_in_head = True
    _num_unanswered = 0  # requests whose head has come
    _is_unread = False  # the client does not read what was written
    _idle_since: float | None = None  # None: a request is in progress

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to read, unless there are too many connections."""
        if len(self.connections) < most_connections():
            super().connection_made(transport)
            transport.set_write_buffer_limits(high=0)  # so that nothing waits unnoticed
            self._note_idle()
            return
        self.transport = transport
        self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "the service has too many connections")
        self._warn()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that nothing can be written any more."""
        self._unread_answers.discard(self)
        super().connection_lost(exc)

    def abort_if_idle(self, seconds: float) -> None:
        """Close it if no request was in progress, or no answer read, for so many seconds."""
        if self._idle_since is not None and self.loop.time() - self._idle_since > seconds:
            self.transport.abort()

    def _note_idle(self) -> None:
        if self._num_unanswered and not self._is_unread:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = self.loop.time()

    def pause_writing(self) -> None:
        """Note that the client does not read."""
        super().pause_writing()
        self._is_unread = True
        self._note_idle()
        self._unread_answers.add(self)

    def resume_writing(self) -> None:
        """Note that the client reads again."""
        super().resume_writing()
        self._is_unread = False
        self._note_idle()
        self._unread_answers.discard(self)

    def _warn(self) -> None:
        """Log that connections are refused, but not for each of them."""
        now, last = self.loop.time(), Connection._last_warning
        if last is None or now - last > SECONDS_BETWEEN_WARNINGS:
            Connection._last_warning = now
            most, files = most_connections(), _most_files()
            why = f"half of the {files:,} files that it may open (ulimit -n)"
            advice = f", {why}; raise this limit for more" if most < MOST_CONNECTIONS else ""
            logs.warning(f"further connections are refused: {most:,} are open{advice}.")

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        self._unread += len(data)
        super().data_received(data)
        if self._unread > MOST_HEAD_BYTES and not self.transport.is_closing():
            self._refuse_large()

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._head_bytes, self._is_in_head = 0, True
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Count and keep a part of the address."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header, and keep it unless it is a trailer."""
        self._count(len(name) + len(value) + len(b": \r\n"))
        if self._is_in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin to answer."""
        self._unread, self._is_in_head = 0, False
        if self.parser.should_upgrade() and self._has_body():
            # The parser does not read this body, so it would begin the next request.
            message = (
                "a request with a body cannot ask for an upgrade; leave the header Upgrade out"
            )
            self._refuse(HTTPStatus.BAD_REQUEST, message)
            raise _RefusedError
        self._num_unanswered += 1
        self._note_idle()
        super().on_headers_complete()
        if len(self.pipeline) > MOST_WAITING:
            raise _RefusedError

    def on_response_complete(self) -> None:
        """Note that a request was answered."""
        self._num_unanswered -= 1
        self._note_idle()
        super().on_response_complete()

    def on_body(self, body: bytes) -> None:
        """Keep a part of a body."""
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note the end of a request."""
        self._unread = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that cannot be read."""
        if self.transport.is_closing():
            return  # it has been refused
        if self._is_too_large():
            self._refuse_large()
        else:
            self._refuse(HTTPStatus.BAD_REQUEST, msg)

    def _has_body(self) -> bool:
        return any(
            name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
            for name, value in self.headers
        )

    def _count(self, num_bytes: int) -> None:
        self._head_bytes += num_bytes
        if self._is_too_large():
            raise _RefusedError

    def _is_too_large(self) -> bool:
        return self._head_bytes > MOST_HEAD_BYTES or len(self.headers or ()) > MOST_HEADERS

    def _refuse_large(self) -> None:
        message = f"a head has more than {MOST_HEAD_BYTES:,} bytes or {MOST_HEADERS} headers"
        self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, message)

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        body = json.dumps({"error": message})
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            "Connection: close",
        )
        self.transport.write("\r\n".join([*head, "", body]).encode())
        self.transport.close()
