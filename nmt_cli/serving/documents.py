"""Documents of requests: they are translated in memory, and wait there until they are fetched."""

from __future__ import annotations

import asyncio
import re
import secrets
import traceback
from collections.abc import Mapping, Sequence
from hmac import compare_digest
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from starlette.requests import Request
from starlette.responses import Response

from nmt_cli.corpus.text.language_codes import standard_code, subtags_of
from nmt_cli.documents.archive import markup_bytes
from nmt_cli.documents.document import Document, DocumentError, filled, without_repeats
from nmt_cli.documents.formats import ENDINGS, NEED_LANGUAGES, format_of, read_document
from nmt_cli.messages import logs
from nmt_cli.serving.models import Model, ServedGlossary
from nmt_cli.serving.requests import REQUEST_ID, RefusedError, Upload
from nmt_cli.serving.service import Service
from nmt_cli.translating.record_keys import COUNT, STRING, Key, objects
from nmt_cli.translating.request import Request as Line
from nmt_cli.translating.translation import Translation
from nmt_cli.translating.workers.worker_process import BUG

KEPT_SECONDS = 600.0
MOST_KEPT_BYTES = 1 << 28  # of all documents that wait
MOST_READ_BYTES = 1 << 24  # of markup, in all documents that are being translated
# Bytes. Office documents have less markup, and reading them takes 150 times their memory; that of
# Markdown takes 700 times its memory, and it has little markup.
MARKUP_OF_A_CHARACTER, MARKDOWN_OF_A_CHARACTER = 40, 10
MOST_DETECTED = 10_000  # characters, of which the language is detected
MOST_FAILED, MOST_SHOWN = 100, 100  # segments that an answer names, and characters of each
BINARY = "application/octet-stream"
FILE = Key("a file", "the document", {"type": "string", "format": "binary"}, is_needed=True)
LANGUAGE = Key("a string", "the code of a language", STRING)
FAILED = objects(
    "the segments that could not be translated and stay as they are, at most 100",
    {
        "segment": Key("a whole number, at least 1", "which one it is", COUNT, is_needed=True),
        "text": Key("a string", "its first characters", STRING, is_needed=True),
        "error": Key("a string", "the reason", STRING, is_needed=True),
    },
)
TAG = re.compile(r"<[^<>]*>")
CODE = re.compile(r"[A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{1,8})*")  # of a language


class Asked(NamedTuple):
    """A document that was read, and what is wanted of it."""

    upload: Upload
    document: Document
    model: Model | None  # None: it is in the target language already
    glossary: ServedGlossary | None = None

    @property
    def ending(self) -> str:
        """The ending of its name."""
        return "." + self.upload.name.rpartition(".")[2].lower()


class Kept:
    """A document that is translated, or will be; ``name`` and ``key`` are secret."""

    def __init__(self, asked: Asked) -> None:
        self.ending = asked.ending
        self.name, self.key = secrets.token_urlsafe(24) + self.ending, secrets.token_urlsafe(24)
        self.num_characters = sum(len(each.text) for each in asked.document.segments)
        self.num_bytes = len(asked.upload.data)
        self.data: bytes | None = None
        self.failed: Sequence[Mapping[str, Any]] = ()  # segments that stay as they are
        self.error: str | None = None

    def response(self) -> Response:
        """Return the translated document. Raises RefusedError if it is not there yet, or failed."""
        if self.data is None:
            raise RefusedError(404, self.error or "the document is not translated yet")
        headers = {
            "Content-Disposition": f'attachment; filename="translation{self.ending}"',
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
        }
        return Response(self.data, media_type=BINARY, headers=headers)


class Documents:
    """Translates documents by a service, and keeps each for a while.

    It runs in the event loop of the service.
    """

    def __init__(self, service: Service) -> None:
        self._service, self._kept = service, dict[str, Kept]()
        self._tasks = set[asyncio.Task[None]]()
        # Bytes of markup of each document that was read, until nobody needs it any more.
        self._read = WeakKeyDictionary[Document, int]()

    async def asked(self, fields: Mapping[str, Any], *, source: str, target: str) -> Asked:
        """Return the document in the field ``file``; these fields name the languages.

        Raises RefusedError if it cannot be read or is too large, or if no model has the languages.
        """
        upload = fields.get("file")
        if not isinstance(upload, Upload):
            raise RefusedError(400, "file must be a file, in a form of several parts")
        codes = str(fields.get(source) or "auto"), str(fields.get(target, ""))
        model = None if codes[0] == "auto" else self._service.models.find(*codes)
        languages = None if model is None else _languages(model, codes)
        if self._read and sum(self._read.values()) + len(upload.data) > MOST_READ_BYTES:
            raise RefusedError(503, "too many documents are being translated", retry_after=1)
        document, num_bytes = await self._service.aside(
            True, _read, upload, self._service, languages
        )
        self._read[document] = num_bytes
        if model is None:
            model = await self._service.aside(True, self._detected, document, codes[1])
        return Asked(upload, document, model)

    def _detected(self, document: Document, target: str) -> Model | None:
        """Return the model for the language of a document, which is detected."""
        texts = "\n".join(TAG.sub("", segment.text) for segment in document.segments)
        (choice,) = self._service.choices([texts[:MOST_DETECTED]], target)
        return choice.model

    async def translate(self, http: Request | None, asked: Asked, kept: Kept) -> None:
        """Fill ``kept`` with the translation; without ``http`` also if the client goes away.

        Raises RefusedError if no segment can be translated, or if it takes too long.
        """
        if asked.model is None:
            kept.data = asked.upload.data
            return
        patterns = self._service.patterns(asked.model)
        lines, places = await self._service.aside(True, _lines, asked, patterns)
        models = [asked.model] * len(lines)
        translations = await self._service.translate(http, models, lines)
        found = [translations[place] for place in places]
        data, kept.failed = await self._service.aside(True, _filled, asked.document, found)
        kept.data, kept.num_bytes = data, len(data)

    def keep(self, asked: Asked) -> Kept:
        """Return a place for the translation, which is emptied after a while.

        Raises RefusedError if too much is kept already.
        """
        kept = Kept(asked)
        if sum(each.num_bytes for each in self._kept.values()) + kept.num_bytes > MOST_KEPT_BYTES:
            raise RefusedError(503, "too many documents are kept", retry_after=60)
        self._kept[kept.name] = kept
        asyncio.get_running_loop().call_later(KEPT_SECONDS, self.discard, kept)
        return kept

    def start(self, asked: Asked) -> Kept:
        """Return a place for the translation, which a task fills meanwhile."""
        kept = self.keep(asked)
        task = asyncio.create_task(self._fill(kept, asked))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return kept

    async def _fill(self, kept: Kept, asked: Asked) -> None:
        try:
            await self.translate(None, asked, kept)
        except RefusedError as error:
            kept.error = error.message
        except Exception:
            logs.warning(
                f"request {REQUEST_ID.get()}: a document met a bug:\n{traceback.format_exc()}"
            )
            kept.error = BUG

    def find(self, name: str, key: str | None = None) -> Kept:
        """Return what is kept under ``name``, if ``key`` is None or that of it.

        Raises RefusedError if there is nothing.
        """
        kept = self._kept.get(name)
        given = "" if kept is None else kept.key if key is None else key
        if kept is None or not compare_digest(kept.key.encode(), given.encode()):
            raise RefusedError(404, "there is no such document, or it is no longer kept")
        return kept

    def discard(self, kept: Kept) -> None:
        """Keep this document no longer."""
        self._kept.pop(kept.name, None)


def _languages(model: Model, codes: tuple[str, str]) -> tuple[str, str]:
    """Return the languages of a request, with the codes of the model if they are the same."""
    source, target = (
        standard_code(wanted)
        if subtags_of(wanted) != subtags_of(own) and CODE.fullmatch(wanted)
        else own
        for wanted, own in zip(codes, (model.source, model.target), strict=True)
    )
    return source, target


def _read(
    upload: Upload, service: Service, languages: tuple[str, str] | None
) -> tuple[Document, int]:
    """Return the document that was sent, in these languages if they are known, and its size.

    Raises RefusedError if it cannot be translated.
    """
    form = format_of(upload.name)
    if form is None:
        endings = ", ".join(each for names in ENDINGS.values() for each in names)
        raise RefusedError(400, f"the name of the file must end in one of {endings}")
    if languages is None and form in NEED_LANGUAGES:
        raise RefusedError(400, f"a document of {form} needs the language of its source")
    most = (
        MARKDOWN_OF_A_CHARACTER if form == "markdown" else MARKUP_OF_A_CHARACTER
    ) * service.limits.characters
    if (num_bytes := markup_bytes(upload.data)) > most:
        raise RefusedError(413, f"{num_bytes:,} bytes of markup are more than {most:,}")
    try:
        document = read_document(upload.data, form, languages=languages)
    except DocumentError as error:
        raise RefusedError(400, f"the file cannot be read as {form}: {error}") from None
    service.limits.refuse_large([segment.text for segment in document.segments])
    return document, num_bytes


def _lines(asked: Asked, patterns: Sequence[str]) -> tuple[list[Line], list[int]]:
    """Return the different lines of a document, and the place of the one for each segment."""
    different, places = without_repeats(asked.document.segments)
    lines = list[Line]()
    for segment in different:
        split = True if segment.split is None else segment.split
        line = segment._replace(split=split, protect=[*patterns, *segment.protect], n_best=1)
        if asked.glossary is not None:
            markup = None if segment.markup == "none" else segment.markup
            line = line._replace(glossary=asked.glossary.for_line(segment.text, markup))
        lines.append(line)
    return lines, places


def _filled(
    document: Document, translations: Sequence[Translation]
) -> tuple[bytes, list[Mapping[str, Any]]]:
    """Return the document with its translations, and the segments that failed."""
    failed: list[Mapping[str, Any]] = [
        {"segment": number, "text": TAG.sub("", segment.text)[:MOST_SHOWN], "error": each.error}
        for number, (segment, each) in enumerate(
            zip(document.segments, translations, strict=True), 1
        )
        if each.error is not None
    ]
    if failed and len(failed) == len(translations):
        raise RefusedError(400, f"no segment could be translated: {failed[0]['error']}")
    return filled(document, translations), failed[:MOST_FAILED]
