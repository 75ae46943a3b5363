"""Requests: their limits, the fields of their bodies, the reasons to refuse them, their lines."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import Field, File, FormParser, parse_options_header
from starlette.requests import Request

from nmt_cli.corpus.text.glossary import lengths_by_word
from nmt_cli.files.lines import why_not_unicode
from nmt_cli.translating.interface.record_keys import Key, refuse_wrong

FORM, FORM_WITH_FILES = "application/x-www-form-urlencoded", "multipart/form-data"
MOST_FIELDS = 10_000  # of a form
MOST_DIGITS = 1_000  # of a number
MOST_PARTS = 1_000  # of a form in several parts
MOST_QUOTED = 100  # characters of a reason, which may have a header of the form
# Of the parser of such forms: only the size of the body limits a part, which stays in memory.
UNLIMITED = {
    **dict.fromkeys(("MAX_MEMORY_FILE_SIZE", "MAX_HEADER_COUNT", "MAX_HEADER_SIZE"), float("inf")),
    "UPLOAD_ERROR_ON_BAD_CTE": True,
}
REQUEST_ID = ContextVar("REQUEST_ID", default="")  # of the request that is being answered
MOST_HELD_BYTES = 1 << 26  # of bodies whose fields have not been read
MOST_PHRASES, MOST_PHRASE_CHARACTERS = 10_000, 500_000  # and terms, of a request
MOST_COMPARED = 100_000_000  # characters of terms at all places of the texts; a few seconds

# The client gets what is wrong with a form; the log would grow with each one.
logging.getLogger("python_multipart").setLevel(logging.CRITICAL)


class RefusedError(Exception):
    """A request that is not answered; ``status`` is that of HTTP."""

    def __init__(
        self, status: int, message: str, retry_after: int | None = None, *, closes: bool = False
    ) -> None:
        """``closes``: its answer closes the connection, which else reads the rest of the body."""
        super().__init__(status, message, retry_after)  # with which another process raises it
        self.status, self.message = status, message
        self.headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
        if closes:
            self.headers["Connection"] = "close"


class Upload(NamedTuple):
    """A file in a form."""

    name: str
    data: bytes


class Limits(NamedTuple):
    """What requests may ask for."""

    body_bytes: int
    characters: int
    lines: int
    waiting_lines: int  # of all requests, beside those that are being translated
    seconds: float  # for a body to come, for its translation, and for the answer to go
    document_bytes: int = 10 << 20  # of a body with a document

    def refuse_large(self, lines: Sequence[str], again: Sequence[str] = ()) -> int:
        """Return the number of characters. Raises RefusedError if these or the lines are many.

        ``again`` are those of the lines that two models translate: for the limits they count twice.
        """
        twice = "; what two models translate counts twice" if again else ""
        if (num_lines := len(lines) + len(again)) > self.lines:
            raise RefusedError(413, f"{num_lines:,} lines are more than {self.lines:,}{twice}")
        num_characters = sum(map(len, lines))
        if (counted := num_characters + sum(map(len, again))) > self.characters:
            message = f"{counted:,} characters are more than {self.characters:,}{twice}"
            raise RefusedError(413, message)
        return num_characters


class BodiesInMemory:
    """The bodies that are in memory, until they are read."""

    num_bytes = 0


@asynccontextmanager
async def body_of(http: Request, limits: Limits, bodies: BodiesInMemory) -> AsyncIterator[bytes]:
    """Read the body, which is one of ``bodies`` until the end of the block.

    Raises RefusedError if it is too large or comes too slowly, or if all together have too much.
    """
    size, most = 0, limits.body_bytes
    too_large = RefusedError(413, f"the body has more than {most:,} bytes", closes=True)

    async def read() -> bytes:
        nonlocal size
        parts = list[bytes]()
        async for part in http.stream():
            parts.append(part)
            size += len(part)
            bodies.num_bytes += len(part)
            if size > most:
                raise too_large
            if bodies.num_bytes > max(MOST_HELD_BYTES, most):
                raise RefusedError(503, "too many bodies are being read", 1, closes=True)
        return b"".join(parts)

    length = http.headers.get("content-length", "0")
    if length.isdecimal() and int(length[:20]) > most:
        raise too_large
    try:
        try:
            body = await asyncio.wait_for(read(), limits.seconds)
        except asyncio.TimeoutError:  # another one than TimeoutError in Python 3.10
            raise RefusedError(408, "the body did not come in time") from None
        yield body
    finally:
        bodies.num_bytes -= size


def json_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a body. Raises RefusedError if there is none, or no Unicode."""
    try:
        record = json.loads(_text(body).removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, f"the body is not JSON: {error}") from None
    if not isinstance(record, dict):
        raise RefusedError(400, "the body is not a JSON object")
    if b"\\u" in body and not _is_unicode(record):
        raise RefusedError(400, "the body has half of a surrogate pair")
    return record


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise RefusedError(400, "the body is not UTF-8") from None


def _is_unicode(record: dict[str, Any]) -> bool:
    """Return whether an answer can have what is in ``record``: escapes may be no characters."""
    try:
        return why_not_unicode(json.dumps(record, ensure_ascii=False)) is None
    except RecursionError:
        return False


def query_fields(http: Request) -> dict[str, Any]:
    """Return the fields of the query. Raises RefusedError if they cannot be read."""
    return _form_fields(http.scope["query_string"].decode("latin-1"), "query")


def body_fields(content_type: str, body: bytes) -> dict[str, Any]:
    """Return the fields of a JSON object or a form.

    A field that is given several times is a list. Raises RefusedError if they cannot be read.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind == FORM_WITH_FILES:
        return _joined(_parts(content_type, body))
    if kind == FORM and not body.lstrip().startswith(b"{"):
        return _form_fields(_text(body), "body")
    return json_object(body) if body else {}


def _form_fields(text: str, where: str) -> dict[str, Any]:
    try:
        return _joined(parse_qsl(text, True, errors="strict", max_num_fields=MOST_FIELDS))
    except UnicodeDecodeError:
        raise RefusedError(400, f"the {where} is not UTF-8") from None
    except ValueError:
        raise RefusedError(413, f"the {where} has more than {MOST_FIELDS:,} fields") from None


def _parts(content_type: str, body: bytes) -> list[tuple[str, str | Upload]]:
    """Return the fields of a form in several parts."""
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        raise RefusedError(400, "the Content-Type of the form has no boundary")
    fields, has_end = list[tuple[str, str | Upload]](), False

    def add(part: Field | File) -> None:
        if len(fields) == MOST_PARTS:
            raise RefusedError(413, f"the form has more than {MOST_PARTS:,} parts")
        fields.append(_field(part))

    def end() -> None:
        nonlocal has_end
        has_end = True

    try:
        FormParser(FORM_WITH_FILES, add, add, end, boundary, config=UNLIMITED).write(body)
    except FormParserError as error:
        raise RefusedError(400, f"the form cannot be read: {str(error)[:MOST_QUOTED]}") from None
    if not has_end:
        raise RefusedError(400, "the form has no end")
    return fields


def _field(part: Field | File) -> tuple[str, str | Upload]:
    """Return the name and the text or the file of a part."""
    if (part.content_type or "").lower().startswith(("multipart/", "message/")):
        raise RefusedError(400, "a part of the form has parts of its own")
    name = _text(part.field_name or b"")
    if isinstance(part, Field):
        return name, _text(part.value or b"")
    part.file_object.seek(0)
    return name, Upload(_text(part.file_name or b""), part.file_object.read())


def _joined(pairs: Iterable[tuple[str, str | Upload]]) -> dict[str, Any]:
    lists: dict[str, list[str | Upload]] = {}
    for name, value in pairs:
        lists.setdefault(name, []).append(value)
    return {name: values if len(values) > 1 else values[0] for name, values in lists.items()}


def refuse_wrong_keys(fields: Mapping[str, Any], keys: Mapping[str, Key]) -> None:
    """Raise RefusedError if a key is unknown or missing, or if a value is wrong."""
    try:
        refuse_wrong(fields, keys)
    except ValueError as error:
        raise RefusedError(400, str(error)) from None


def refuse_many_phrases(record: Mapping[str, Any]) -> None:
    """Raise RefusedError if a request has too many terms and phrases, or too long ones."""
    found = [record.get(key) for key in ("prefix", "required", "banned", "glossary")]
    number = sum(len(each) for each in found if isinstance(each, list | dict))
    if number > MOST_PHRASES:
        raise RefusedError(413, f"{number:,} terms and phrases are more than {MOST_PHRASES:,}")
    num_characters = _num_characters(found)
    if num_characters > MOST_PHRASE_CHARACTERS:
        message = f"terms and phrases of {num_characters:,} characters are more than"
        raise RefusedError(413, f"{message} {MOST_PHRASE_CHARACTERS:,}")
    if isinstance(terms := record.get("glossary"), dict):
        _refuse_many_lengths(terms, _num_characters(record["text"]))


def _refuse_many_lengths(terms: Iterable[str], num_characters: int) -> None:
    sums = {word: sum(lengths) for word, lengths in lengths_by_word(terms).items()}
    word = max(sums, key=sums.__getitem__, default="")
    if sums and num_characters * sums[word] > MOST_COMPARED:
        raise RefusedError(
            413,
            f"{num_characters:,} characters of text times {sums[word]:,} of the terms that begin "
            f"with {word[:50]!r} (one of each length) are more than {MOST_COMPARED:,}; send less "
            "text, or fewer such terms",
        )


def _num_characters(value: Any) -> int:
    """Return how many characters the strings in a value of JSON have."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return _num_characters(list(value.items()))
    return sum(map(_num_characters, value)) if isinstance(value, list | tuple) else 0


def texts_of(fields: Mapping[str, Any], key: str, limits: Limits) -> list[str]:
    """Return the texts of a field, which is one or a list.

    Raises RefusedError if it has none, or more than ``limits`` allow.
    """
    value = fields.get(key)
    values = value if isinstance(value, list) else [value]
    texts = [text for text in values if isinstance(text, str)]
    if not texts or len(texts) < len(values):
        raise RefusedError(400, f"{key} must be a text or a list of texts that is not empty")
    limits.refuse_large(texts)
    return texts


def whole_number(fields: Mapping[str, Any], key: str) -> int:
    """Return the number of a field, or 0. Raises RefusedError if it is none, or is negative."""
    digits = str(fields.get(key, 0))
    if not digits.isdecimal() or len(digits) > MOST_DIGITS:
        raise RefusedError(400, f"{key} must be a whole number, at least 0")
    return int(digits)
