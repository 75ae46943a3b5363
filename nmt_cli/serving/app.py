"""The application: the paths of all interfaces, and how errors are answered."""

from __future__ import annotations

import time
import traceback
from collections.abc import Awaitable, Callable, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from nmt_cli.messages import logs
from nmt_cli.serving.openapi import interfaces, key_of_errors
from nmt_cli.serving.requests import Endpoint, RefusedError
from nmt_cli.serving.service import Service

STATUS_CLIENT_GONE = 499  # nobody gets it; it is counted
PATHS = [endpoint for _, endpoints in interfaces().values() for endpoint in endpoints]


def app_of(service: Service, origins: Sequence[str] = ()) -> Starlette:
    """Return the application of ``service``; pages of ``origins`` may ask it in browsers."""
    cors = Middleware(
        CORSMiddleware, allow_origins=origins, allow_methods=["*"], allow_headers=["*"]
    )
    return Starlette(
        routes=[
            Route(each.path, _answering(service, each), methods=[each.method]) for each in PATHS
        ],
        middleware=[cors] if origins else [],
        exception_handlers={HTTPException: _http_error},
    )


def _answering(service: Service, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    """Return what answers requests for a path, also if they fail, and counts the answers."""
    path = endpoint.path

    async def answering(http: Request) -> Response:
        started = time.perf_counter()
        try:
            response = await endpoint.answer(service, http)
        except RefusedError as error:
            record = {key_of_errors(path): error.message}
            response = JSONResponse(record, error.status, error.headers)
        except ClientDisconnect:
            response = Response(status_code=STATUS_CLIENT_GONE)
        except Exception:
            logs.warning(f"{endpoint.method} {path} met a bug:\n{traceback.format_exc()}")
            record = {key_of_errors(path): "it met a bug; the log of the server has its traceback"}
            response = JSONResponse(record, 500)
        service.figures.count(path, response.status_code, time.perf_counter() - started)
        return response

    return answering


async def _http_error(http: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    record = {key_of_errors(http.url.path): error.detail}
    return JSONResponse(record, error.status_code, error.headers)
