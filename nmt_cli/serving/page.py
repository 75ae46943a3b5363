"""The page at `/`, with which a person tries the models; it needs nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from nmt_cli.files.lines import is_blank
from nmt_cli.messages.proposals import any_of
from nmt_cli.serving.models import Model
from nmt_cli.serving.requests import RefusedError, refuse_wrong_keys
from nmt_cli.serving.served import Served
from nmt_cli.serving.service import Endpoint, Service
from nmt_cli.translating.interface.record_keys import STRING, Key
from nmt_cli.translating.workers.messages import AttentionOf

HEADERS = {
    # The page runs no other script, and sends nothing to another host.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; frame-src 'self'; form-action 'self'; img-src data:; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def _file(path: str, name: str, media_type: str, what: str) -> Endpoint:
    """Return the path of a file of this folder; ``what`` describes it."""

    async def answer(_: Service, __: Request) -> Response:
        return Response(_content(name), media_type=media_type, headers=HEADERS)

    answer.__doc__ = what
    return Endpoint("GET", path, answer, media_type=media_type)


@cache
def _content(name: str) -> bytes:
    return resources.files("nmt_cli.serving").joinpath(name).read_bytes()


async def attention(service: Service, http: Request) -> Response:
    """Return a page with the attention between a text and its translation.

    On a CPU workers compute it beside the lines that they translate, on a GPU between two steps.
    """
    model, wanted = await service.asked(http, _wanted)
    shown = await service.attention(http, model, wanted)
    # The page names the only script that it may run.
    return HTMLResponse(shown, headers={"X-Frame-Options": "SAMEORIGIN"})


def _wanted(served: Served, fields: Mapping[str, Any]) -> tuple[Model, AttentionOf]:
    refuse_wrong_keys(fields, PAIR)
    text, translation, name = (fields[key] for key in PAIR if PAIR[key].is_needed)
    served.limits.refuse_large([text + translation])
    if is_blank(text) or is_blank(translation):
        raise RefusedError(400, "text and translation must not be blank")
    model = served.models.find(fields.get("source"), fields.get("target"), name)
    if model.steps:
        names = any_of([each.name for each in model.steps])
        raise RefusedError(400, f"{model.name} is two models; ask for the attention of {names}")
    read = text if model.tag is None else f"{model.tag} {text}"
    return model, AttentionOf(read, translation, model.name, model.source, model.target)


PAIR = {
    "text": Key(STRING, "the source", is_needed=True),
    "translation": Key(STRING, "its translation", is_needed=True),
    "model": Key(STRING, "name of a model of `/v1/models`", is_needed=True),
    "source": Key(STRING, "code of the language of the text, for a model of several"),
    "target": Key(STRING, "that of the translation"),
}
PATHS = [
    _file("/", "page.html", "text/html", "Return the page."),
    _file("/page.css", "page.css", "text/css", "Return its style sheet."),
    _file("/page.js", "page.js", "text/javascript", "Return its script."),
    Endpoint("POST", "/v1/attention", attention, PAIR, media_type="text/html", is_closed=True),
]
