"""The application: the paths of all interfaces, and how errors are answered."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nmt_cli.messages import logs
from nmt_cli.serving.documents import Documents
from nmt_cli.serving.openapi import interfaces, key_of_errors
from nmt_cli.serving.operation import ServiceFigures
from nmt_cli.serving.requests import BUG, REQUEST_ID, RefusedError
from nmt_cli.serving.service import Endpoint, Service

STATUS_CLIENT_GONE = 499  # nobody gets it; it is counted
ID_HEADER = "X-Request-ID"
ID_OF_CLIENT = re.compile(r"[A-Za-z0-9._:+/=-]{1,64}")  # others might mislead who reads the log
PATHS = [endpoint for _, endpoints in interfaces().values() for endpoint in endpoints]


def app_of(service: Service) -> Starlette:
    """Return the application of ``service``."""
    origins = service.options.origins
    cors = Middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_methods=["*"],
        allow_headers=["*"],
        expose_headers=[ID_HEADER],
    )
    app = Starlette(
        routes=[
            Route(each.path, _answering(service, each), methods=[each.method]) for each in PATHS
        ],
        middleware=[Middleware(_WithIds), *([cors] if origins else [])],
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


class _WithIds:
    """Gives each request an id, which is in a header of its answer and in what is logged of it.

    A client may choose it by the same header.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = Headers(scope=scope).get(ID_HEADER, "")
        chosen = given if ID_OF_CLIENT.fullmatch(given) else secrets.token_hex(8)
        REQUEST_ID.set(chosen)  # each request has a task, and so a context, of its own

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[ID_HEADER] = chosen
            await send(message)

        await self._app(scope, receive, send_with_id)


async def _http_error(http: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _refusal(http.url.path, error.status_code, error.detail, error.headers)


def _refusal(
    path: str, status: int, message: str, headers: Mapping[str, str] | None = None
) -> Response:
    return JSONResponse({key_of_errors(path): message}, status, headers)
