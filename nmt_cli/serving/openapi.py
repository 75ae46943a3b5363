"""This description, as a document of OpenAPI."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nmt_cli import __version__
from nmt_cli.serving import deepl, libretranslate, operation, own_interface, page
from nmt_cli.serving.documents import BINARY
from nmt_cli.serving.requests import FORM, FORM_WITH_FILES
from nmt_cli.serving.served import KEY_FIELDS
from nmt_cli.serving.service import Endpoint, Service
from nmt_cli.translating.interface.record_keys import STRING, Key, list_of, object_of

TITLE = "nmt-cli serve"
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
OF_USERS = dict.fromkeys(KEY_FIELDS, Key(STRING, "a key of this service"))


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
    error = object_of({key_of_errors(endpoint.path): Key(STRING, "the reason", is_needed=True)})
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


async def openapi(_: Service, __: Request) -> Response:
    """Return the description of all paths by the rules of OpenAPI."""
    return JSONResponse(document())


async def spec(service: Service, http: Request) -> Response:
    """Return the same, where clients of LibreTranslate look for it."""
    return await openapi(service, http)


PATHS = [
    Endpoint("GET", "/openapi.json", openapi, returns={}),
    Endpoint("GET", "/spec", spec, returns={}),
]
