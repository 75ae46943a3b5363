"""This description: as a page, and as a document of OpenAPI."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from html import escape
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nmt_cli import __version__
from nmt_cli.serving import deepl, libretranslate, operation, own_interface, page
from nmt_cli.serving.documents import BINARY
from nmt_cli.serving.requests import FORM, FORM_WITH_FILES
from nmt_cli.serving.served import KEY_FIELDS
from nmt_cli.serving.service import Endpoint, Service
from nmt_cli.translating.record_keys import STRING, Key, list_of, object_of

TITLE = "nmt-cli serve"
INTRODUCTION = (
    "Requests and answers are JSON in UTF-8. Keys in bold must be given, and an answer always has "
    "them. `/openapi.json` describes the same to programs. The header `X-Request-ID` of an answer "
    "has the name of its request in the log; a request may choose it by the same header."
)
ERRORS = {
    400: "the request cannot be read, a key or a value is wrong, or no model has these languages; "
    "also if a text cannot be translated, except by `/v1/translate`, which answers with status 200 "
    "and the `error` of this text",
    403: "the key is wrong, or missing",
    404: "there is no such path or glossary",
    405: "the path has another method",
    408: "the body did not come in time",
    413: "the body, the texts, or the number of texts or fields is larger than the service allows",
    500: "a bug; the log of the service has its traceback",
    503: "the service is starting, draining or full, or a translation took too long; after as many "
    "seconds as the header `Retry-After` has, try again",
}
VARIABLE = re.compile(r"{(\w+)}")  # in a path
JSON = "application/json"
OF_USERS = dict.fromkeys(KEY_FIELDS, Key("a string", "a key of this service", STRING))


def interfaces() -> Mapping[str, tuple[str, list[Endpoint]]]:
    """Return for each kind of clients the title of its interface: its description, its paths."""
    return {
        "Its own interface": (inspect.getdoc(own_interface) or "", own_interface.PATHS),
        "LibreTranslate": (inspect.getdoc(libretranslate) or "", libretranslate.PATHS),
        "DeepL": (inspect.getdoc(deepl) or "", deepl.PATHS),
        "Operation": (inspect.getdoc(operation) or "", operation.PATHS),
        "The page": (inspect.getdoc(page) or "", page.PATHS),
        "Description": (__doc__ or "", PATHS),
    }


def described(endpoint: Endpoint) -> tuple[str, str]:
    """Return what a path does, in a line, and the paragraphs after it."""
    summary, _, rest = (inspect.getdoc(endpoint.answer) or "").partition("\n\n")
    return summary, re.sub(r"(?<!\n)\n(?!\n)", " ", rest)


def key_of_errors(path: str) -> str:
    """Return the key under which clients of an interface expect the reason of an error."""
    return "message" if path.startswith("/v2/") else "error"


def document() -> dict[str, Any]:
    """Return the description of all paths, by the rules of OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    for title, (_, endpoints) in interfaces().items():
        for endpoint in endpoints:
            operation = {"tags": [title], **_operation(endpoint)}
            paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": TITLE, "version": __version__},
        "servers": [{"url": "."}],
        "tags": [{"name": name, "description": each} for name, (each, _) in interfaces().items()],
        "paths": paths,
        "components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    summary, more = described(endpoint)
    operation: dict[str, Any] = {
        "operationId": re.sub(r"\W+", "_", f"{endpoint.method} {endpoint.path}").lower(),
        "summary": summary,
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": STRING}
            for name in VARIABLE.findall(endpoint.path)
        ],
        "responses": {"200": {"description": "The answer.", "content": _content(endpoint)}},
    }
    if more:
        operation["description"] = more
    if endpoint.takes is None:
        return operation
    taken = {**endpoint.takes, **OF_USERS}
    operation["security"] = [{}, {"key": []}]
    if endpoint.method == "GET":
        operation["parameters"] += [
            {"name": name, "in": "query", "description": key.meaning, "schema": key.schema}
            for name, key in taken.items()
        ]
    else:
        schema = object_of(taken, is_closed=endpoint.is_closed)
        body = {"schema": schema, **({"example": endpoint.example} if endpoint.example else {})}
        kinds = [JSON] if endpoint.only_json else [JSON, FORM, FORM_WITH_FILES]
        kinds = [FORM_WITH_FILES] if endpoint.has_file else kinds
        operation["requestBody"] = {"required": True, "content": dict.fromkeys(kinds, body)}
    error = object_of({key_of_errors(endpoint.path): Key("a string", "the reason", STRING, True)})
    for status, meaning in ERRORS.items():
        content = {JSON: {"schema": error}}
        operation["responses"][str(status)] = {"description": meaning, "content": content}
    return operation


def _content(endpoint: Endpoint) -> dict[str, Any]:
    if endpoint.media_type == BINARY:
        return {BINARY: {"schema": {}}}
    if endpoint.media_type != JSON:
        return {endpoint.media_type: {"schema": STRING}}
    returned = object_of(endpoint.returns)
    return {JSON: {"schema": list_of(returned) if endpoint.returns_list else returned}}


class Block(NamedTuple):
    """A part of the page."""

    kind: str  # "h1", "h2", "h3", "p" and "pre" have a text, "table" has rows
    text: str = ""
    rows: Sequence[tuple[str, ...]] = ()  # the first one is the head


def blocks() -> Iterator[Block]:
    """Yield what the page has; text between grave accents is code."""
    for title, (description, endpoints) in interfaces().items():
        yield Block("h2", title)
        yield from (Block("p", each) for each in description.split("\n\n"))
        for endpoint in endpoints:
            yield from _blocks_of(endpoint)
    yield Block("h2", "Keys of users")
    names = " or ".join(f"`{name}`" for name in KEY_FIELDS)
    every = [each for _, endpoints in interfaces().values() for each in endpoints]
    open_paths = ", ".join(f"`{each.path}`" for each in every if each.takes is None)
    yield Block(
        "p",
        "A service that was started with `--api-keys` answers only requests with one of its keys: "
        f"in the header `Authorization: Bearer KEY`, or as {names} among the keys of the object. "
        "The body is not read if the key in the header is wrong. "
        f"These paths need none: {open_paths}.",
    )
    yield Block("h2", "Errors")
    yield Block(
        "p",
        "An error is an object with the reason: `error`, or `message` if the path is one of DeepL.",
    )
    rows = [(str(status), meaning) for status, meaning in ERRORS.items()]
    yield Block("table", rows=[("status", "meaning"), *rows])


def _blocks_of(endpoint: Endpoint) -> Iterator[Block]:
    yield Block("h3", f"`{endpoint.method} {endpoint.path}`")
    summary, more = described(endpoint)
    for paragraph in (summary, *more.split("\n\n")):
        if paragraph:
            yield Block("p", paragraph)
    if endpoint.takes:
        yield from _table("It takes", endpoint.takes)
    if endpoint.example:
        yield Block("pre", command_of(endpoint))
    if endpoint.returns:
        kind = "a list of objects" if endpoint.returns_list else "an object"
        yield from _table(f"The answer is {kind}", endpoint.returns)


def _table(title: str, keys: Mapping[str, Key]) -> Iterator[Block]:
    yield Block("p", f"{title}:")
    rows = [
        (f"**`{name}`**" if key.is_needed else f"`{name}`", key.allowed, key.meaning)
        for name, key in keys.items()
    ]
    yield Block("table", rows=[("key", "value", "meaning"), *rows])
    for name, key in keys.items():
        if key.of_each:
            yield from _table(f"Each of `{name}` is an object", key.of_each)


def command_of(endpoint: Endpoint, address: str = "http://127.0.0.1:5000") -> str:
    """Return the command that sends the example of a path."""
    return f"curl {address}{endpoint.path} -d '{json.dumps(endpoint.example)}'"


def as_html(found: Block) -> str:
    """Return a block of the page in HTML."""
    if found.kind == "table":
        head, *rows = found.rows
        lines = [
            f"<tr>{''.join(f'<{cell}>{_html(text)}</{cell}>' for text in row)}</tr>"
            for cell, row in (("th", head), *(("td", row) for row in rows))
        ]
        return "\n".join(["<table>", *lines, "</table>"])
    text = escape(found.text) if found.kind == "pre" else _html(found.text)
    return f"<{found.kind}>{text}</{found.kind}>"


def _html(text: str) -> str:
    text = re.sub(r"\*\*(.*?)\*\*", r"<b>\1</b>", escape(text))
    return re.sub(r"`(.*?)`", r"<code>\1</code>", text)


async def openapi(_: Service, __: Request) -> Response:
    """Return the description of all paths by the rules of OpenAPI."""
    return JSONResponse(document())


async def docs(_: Service, __: Request) -> Response:
    """Return the description of all paths as a page, which needs nothing from elsewhere."""
    return Response(_page(), media_type="text/html", headers=page.HEADERS)


@cache
def _page() -> str:
    head = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{TITLE}</title>\n"
        '<link rel="icon" href="data:,">\n<link rel="stylesheet" href="page.css">\n</head>\n<body>'
    )
    intro = [Block("h1", "The interface of this service"), Block("p", INTRODUCTION)]
    return "\n".join([head, *map(as_html, [*intro, *blocks()]), "</body>", "</html>", ""])


PATHS = [
    Endpoint("GET", "/docs", docs, media_type="text/html"),
    Endpoint("GET", "/openapi.json", openapi, returns={}),
]
