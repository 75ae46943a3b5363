"""The description of a path, and the statuses of errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from nmt_cli.serving.service import Service
from nmt_cli.translating.record_keys import Key


class Endpoint(NamedTuple):
    """A path of an interface: what answers it, and what the docstring of that does not describe.

    It takes a JSON object, or the same keys in a form or in the query.
    """

    method: str
    path: str
    answer: Callable[[Service, Request], Awaitable[Response]]
    takes: Mapping[str, Key] | None = None  # further keys than that of a user; None: none is read
    returns: Mapping[str, Key] = {}  # the keys of a JSON object
    returns_list: bool = False  # of these objects
    media_type: str = "application/json"
    example: Mapping[str, Any] = {}  # a request
    is_closed: bool = False  # further keys are refused
    only_json: bool = False
    has_file: bool = False  # in a form of several parts, which is then the only kind of body


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
    501: "the service lacks a package that cuts sentences",
    503: "the service is starting, draining or full, or a translation took too long; after as many "
    "seconds as the header `Retry-After` has, try again",
}
