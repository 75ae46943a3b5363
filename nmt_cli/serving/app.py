"""The application: the paths of all interfaces, and how errors are answered."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from nmt_cli.serving import deepl, libretranslate, operation, own_interface, page
from nmt_cli.serving.requests import RefusedError
from nmt_cli.serving.service import Service

STATUS_CLIENT_GONE = 499  # nobody gets it; it is counted
INTERFACES = (own_interface, libretranslate, deepl, operation, page)
PATHS = [path for interface in INTERFACES for path in interface.PATHS]

Answer = Callable[[Service, Request], Awaitable[Response]]
Endpoint = Callable[[Request], Awaitable[Response]]


def app_of(service: Service, origins: Sequence[str] = ()) -> Starlette:
    """Return the application of ``service``; pages of ``origins`` may ask it in browsers."""
    cors = Middleware(
        CORSMiddleware, allow_origins=origins, allow_methods=["*"], allow_headers=["*"]
    )
    return Starlette(
        routes=[
            Route(path, _endpoint(service, path, answer), methods=[method])
            for method, path, answer in PATHS
        ],
        middleware=[cors] if origins else [],
        exception_handlers={HTTPException: _http_error},
    )


def _endpoint(service: Service, path: str, answer: Answer) -> Endpoint:
    """Return what answers requests for ``path``, also if they are refused, and counts them."""

    async def endpoint(http: Request) -> Response:
        started = time.perf_counter()
        try:
            response = await answer(service, http)
        except RefusedError as error:
            record = {_key_of_errors(path): error.message}
            response = JSONResponse(record, error.status, error.headers)
        except ClientDisconnect:
            response = Response(status_code=STATUS_CLIENT_GONE)
        service.figures.count(path, response.status_code, time.perf_counter() - started)
        return response

    return endpoint


async def _http_error(http: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    record = {_key_of_errors(http.url.path): error.detail}
    return JSONResponse(record, error.status_code, error.headers)


def _key_of_errors(path: str) -> str:
    """Return the key under which clients of an interface expect the reason of an error."""
    return "message" if path.startswith("/v2/") else "error"
