"""Runs the service: starts the workers of each model, listens, and ends after a signal."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import Any

import uvicorn
from starlette.applications import Starlette

from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.serving.app import app_of
from nmt_cli.serving.connections import Connection, allow_many_files, most_accepted
from nmt_cli.serving.models import Models
from nmt_cli.serving.service import Options, Service
from nmt_cli.translating.workers.dispatcher import Dispatcher
from nmt_cli.translating.workers.starter import Starter

SECONDS_BETWEEN_LOOKS = 1.0  # at connections without a request in progress


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 is any free one. Raises UserError if it cannot."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, place = found[0]
        listener = socket.create_server(place[:2], family=family, backlog=2048)
    except OSError as error:
        raise UserError(f"cannot listen on {host}, port {port}: {error.strerror}.") from None
    # Connections inherit it. Without it, the body of an answer waits 40 ms for the client to
    # acknowledge the head; asyncio sets it only for sockets whose protocol is given.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
    return listener


class Server(uvicorn.Server):
    """A server that leaves signals to the service, and closes connections that do nothing."""

    def __init__(self, app: Starlette, seconds: float) -> None:
        """``seconds`` a connection may be without a request in progress that it has begun."""
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            log_level="error",  # its warnings are a line for each request of a hostile client
            lifespan="off",
            server_header=False,
            http=Connection,
            ws="none",
            backlog=most_accepted(),
            timeout_graceful_shutdown=2,
        )
        super().__init__(config)
        self._seconds = seconds

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle no signal."""
        yield

    async def close_idle_connections(self) -> None:
        """Close those that send no complete head, or do not read their answers, for too long.

        Others are closed elsewhere: by uvicorn five seconds after an answer was read, and while a
        request is in progress by the time that it may take.
        """
        idle: dict[Any, tuple[Any, float]] = {}  # the last request of each, and since when
        while True:
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)
            now, before, idle = asyncio.get_running_loop().time(), idle, {}
            for connection in self.server_state.connections:
                cycle = connection.cycle  # type: ignore[union-attr]
                is_stuck = connection.flow.write_paused  # type: ignore[union-attr]
                if cycle is None or cycle.response_complete or is_stuck:
                    last, since = before.get(connection, (cycle, now))
                    idle[connection] = (cycle, since if last is cycle else now)
                    if now - idle[connection][1] > self._seconds:
                        connection.transport.abort()


async def serve(
    listener: socket.socket,
    models: Models,
    starters: Mapping[str, Starter],
    num_workers: int,
    options: Options,
) -> None:
    """Serve until SIGTERM or SIGINT; then finish what was accepted.

    ``starters`` start the workers of each model. Raises UserError if they cannot be started.
    """
    allow_many_files()
    async with AsyncExitStack() as stack:
        seconds = options.limits.seconds
        workers = {
            name: Dispatcher(each, num_workers, seconds=seconds) for name, each in starters.items()
        }
        for each in workers.values():
            stack.callback(each.close)
        service = Service(models, workers, options)
        server, ending = Server(app_of(service), seconds), asyncio.Event()

        def end() -> None:
            server.force_exit = ending.is_set()  # a second signal
            service.state = "draining"
            ending.set()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, end)
        listening = loop.create_task(server.serve([listener]))
        stack.push_async_callback(_ended, server, listening)
        watching = loop.create_task(server.close_idle_connections())
        stack.callback(watching.cancel)
        await _until(ending, [each.opened() for each in workers.values()])
        if not ending.is_set():
            service.state = "ready"
            host, port = listener.getsockname()[:2]
            logs.info(f"Serving on http://{f'[{host}]' if ':' in host else host}:{port}")
        await _until(ending, [each.broken for each in workers.values()])
        deadline = loop.time() + options.drain_seconds
        while service.num_inside and loop.time() < deadline and not server.force_exit:
            await asyncio.sleep(0.05)


async def _until(event: asyncio.Event, others: Iterable[Awaitable[None]]) -> None:
    """Wait for the event, or for all of ``others``; raises an error of one of these at once."""
    waiting = asyncio.ensure_future(event.wait())
    together = asyncio.gather(*others)
    both: set[asyncio.Future[Any]] = {waiting, together}
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if together.done():
        together.result()
    else:
        together.cancel()
        with suppress(asyncio.CancelledError):
            await together


async def _ended(server: Server, listening: asyncio.Task[None]) -> None:
    server.should_exit = True
    await listening
