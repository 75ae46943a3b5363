"""The page at ``/``, with which a person tries the models; it needs nothing from elsewhere."""

from __future__ import annotations

from importlib import resources

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

FILES = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}
HEADERS = {
    # The page runs no other script, and sends nothing to another host.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; frame-src 'self'; form-action 'self'; img-src data:; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def routes() -> list[Route]:
    """Return the paths of the page and its files."""
    return [_route(path, *file) for path, file in FILES.items()]


def _route(path: str, name: str, media_type: str) -> Route:
    content = resources.files("nmt_cli.serving").joinpath(name).read_bytes()

    async def answer(_: Request) -> Response:
        return Response(content, media_type=media_type, headers=HEADERS)

    return Route(path, answer)
