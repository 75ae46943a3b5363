"""The application: the paths of all interfaces, and how errors are answered."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from nmt_cli.serving import own_interface, page
from nmt_cli.serving.requests import STATUS_CLIENT_GONE, RefusedError, Service


def app_of(service: Service) -> Starlette:
    """Return the application of ``service``."""

    async def health(_: Request) -> Response:
        status = 200 if service.state == "ready" else 503
        return JSONResponse({"status": service.state}, status)

    return Starlette(
        routes=[*own_interface.routes(service), *page.routes(), Route("/health", health)],
        exception_handlers={
            RefusedError: _refused,
            HTTPException: _http_error,
            ClientDisconnect: _gone,
        },
    )


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError)
    return JSONResponse({"error": error.message}, error.status, error.headers)


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _gone(_: Request, __: Exception) -> Response:
    return Response(status_code=STATUS_CLIENT_GONE)
