"""The server: the paths of all interfaces, how errors are answered, its begin and its end."""

from __future__ import annotations

import asyncio
import re
import secrets
import signal
import socket
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import Any, cast

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.serving import operation
from nmt_cli.serving.connections import (
    Connection,
    allow_many_files,
    most_accepted,
    refuse_unknown_uvicorn,
)
from nmt_cli.serving.documents import Documents
from nmt_cli.serving.models import Models
from nmt_cli.serving.openapi import interfaces, key_of_errors
from nmt_cli.serving.operation import ServiceFigures
from nmt_cli.serving.requests import REQUEST_ID, RefusedError
from nmt_cli.serving.served import Options
from nmt_cli.serving.service import TEXTS_OF_REQUEST, Endpoint, Service
from nmt_cli.translating.workers.dispatcher import Dispatcher
from nmt_cli.translating.workers.starter import Starter
from nmt_cli.translating.workers.worker_process import BUG

STATUS_CLIENT_GONE = 499  # nobody gets it; it is counted
ID_HEADER = "X-Request-ID"
ID_OF_CLIENT = re.compile(r"[A-Za-z0-9._:+/=-]{1,64}")  # others might mislead who reads the log
ORIGIN = re.compile(r"null|[a-z][a-z0-9+.-]{0,30}://[A-Za-z0-9._:\[\]-]{1,253}")
MOST_LOGGED_ORIGINS = 20  # a hostile client may send any number
ENDPOINT = "nmt_cli.endpoint"  # in the scope of a request
UNLOGGED = {endpoint.path for endpoint in operation.PATHS}  # programs ask for them all the time
PATHS = [endpoint for _, endpoints in interfaces().values() for endpoint in endpoints]
SECONDS_BETWEEN_LOOKS = 1.0  # at connections without a request in progress


def app_of(service: Service) -> Starlette:
    """Return the application of ``service``."""
    cors = Middleware(_LoggingCORS, origins=service.options.origins)
    app = Starlette(
        routes=[
            Route(each.path, _answering(service, each), methods=[each.method]) for each in PATHS
        ],
        middleware=[Middleware(_Logged), cors],
        exception_handlers={HTTPException: _http_error},
    )
    app.state.figures, app.state.documents = ServiceFigures(service), Documents(service)
    app.router.redirect_slashes = False  # it would redirect to the host that the client names
    return app


def _answering(service: Service, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    """Return what answers requests for a path, also if they fail, and counts the answers."""
    path = endpoint.path

    async def answering(http: Request) -> Response:
        started = time.perf_counter()
        http.scope[ENDPOINT] = endpoint
        try:
            response = await endpoint.answer(service, http)
        except RefusedError as error:
            response = _refusal(path, error.status, error.message, error.headers)
        except ClientDisconnect:
            response = Response(status_code=STATUS_CLIENT_GONE)
        except asyncio.CancelledError:  # the server has waited for it long enough, and ends
            response = _refusal(path, 503, "the service is draining", {"Retry-After": "1"})
        except Exception:
            what = f"request {REQUEST_ID.get()}: {endpoint.method} {path} met a bug"
            logs.warning(f"{what}:\n{traceback.format_exc()}")
            response = _refusal(path, 500, BUG)
        figures: ServiceFigures = http.app.state.figures
        figures.count(path, response.status_code, time.perf_counter() - started)
        return response

    return answering


class _Logged:
    """Logs each request, and gives it an id, which is in a header of its answer and in the log.

    A client may choose it by the same header. The log has nothing else that clients choose: neither
    a text, nor an address, which may be that of a document, nor the name of a file.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = Headers(scope=scope).get(ID_HEADER, "")
        chosen = given if ID_OF_CLIENT.fullmatch(given) else secrets.token_hex(8)
        REQUEST_ID.set(chosen)  # each request has a task, and so a context, of its own
        started, status = time.perf_counter(), 500

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[ID_HEADER] = chosen
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        finally:
            endpoint: Endpoint | None = scope.get(ENDPOINT)
            if endpoint is None or endpoint.path not in UNLOGGED:
                path = "another path" if endpoint is None else endpoint.path
                milliseconds = round(1000 * (time.perf_counter() - started))
                texts = f", {scope[TEXTS_OF_REQUEST]}" if TEXTS_OF_REQUEST in scope else ""
                what = f"{scope['method']} {path}, status {status}, {milliseconds:,} ms{texts}"
                logs.info(f"request {chosen}: {what}")


class _LoggingCORS(CORSMiddleware):
    """Logs once from which origins pages may not use the service."""

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        """``origins`` are those of pages that may."""
        every = ["*"]
        super().__init__(app, origins, every, every, expose_headers=[ID_HEADER])
        self._logged = set[str]()

    def preflight_response(self, request_headers: Headers) -> Response:
        """Answer whether a page may send a request."""
        origin = request_headers["origin"]
        is_new = origin not in self._logged and len(self._logged) < MOST_LOGGED_ORIGINS
        if is_new and ORIGIN.fullmatch(origin) and not self.is_allowed_origin(origin):
            self._logged.add(origin)
            logs.warning(
                f"request {REQUEST_ID.get()}: a page of {origin} may not use the service in a "
                f"browser; for this, add --allow-origin {origin}, or for all pages "
                "--allow-origin '*'."
            )
        return super().preflight_response(request_headers)


class _BehindProxy(ProxyHeadersMiddleware):
    """Takes the host and the path of a proxy, which answers have, from those that uvicorn trusts.

    These are on this machine, or the environment variable FORWARDED_ALLOW_IPS has their addresses.
    """

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        client = (scope.get("client") or [""])[0]
        if client in self.trusted_hosts or "*" in self.trusted_hosts:  # uvicorn 0.30 compares names
            headers = MutableHeaders(scope=scope)
            host, path = (
                # Of the last proxy; some write a header of their own behind that of the client.
                ",".join(headers.getlist(f"X-Forwarded-{name}")).rpartition(",")[2].strip()
                for name in ("Host", "Prefix")
            )
            if host:
                headers["Host"] = host
            scope["app_root_path"] = "/" + path.strip("/")
        await super().__call__(scope, receive, send)


async def _http_error(http: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _refusal(http.url.path, error.status_code, error.detail, error.headers)


def _refusal(
    path: str, status: int, message: str, headers: Mapping[str, str] | None = None
) -> Response:
    return JSONResponse({key_of_errors(path): message}, status, headers)


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
            proxy_headers=False,  # these are read here
        )
        config.app = _BehindProxy(cast(Any, app), config.forwarded_allow_ips)
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
        while True:
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)
            for connection in list(self.server_state.connections):
                assert isinstance(connection, Connection)
                connection.abort_if_idle(self._seconds)


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
        stack.push_async_callback(service.readers.close)
        server, ending = Server(app_of(service), seconds), asyncio.Event()
        refuse_unknown_uvicorn(server.config)

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
    together.cancel()
    with suppress(asyncio.CancelledError):
        await together


async def _ended(server: Server, listening: asyncio.Task[None]) -> None:
    server.should_exit = True
    await listening
