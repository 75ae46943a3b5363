"""Documents of requests: they are translated in memory, and wait there until they are fetched."""

from __future__ import annotations

import asyncio
import re
import secrets
import traceback
from collections.abc import Mapping, Sequence
from hmac import compare_digest
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from nmt_cli.documents.archive import markup_bytes
from nmt_cli.documents.document import Document, DocumentError, without_repeats
from nmt_cli.documents.formats import ENDINGS, NEED_LANGUAGES, format_of, read_document
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.serving.models import Model, ServedGlossary
from nmt_cli.serving.requests import REQUEST_ID, RefusedError, Upload
from nmt_cli.serving.service import Service
from nmt_cli.translating.record_keys import STRING, Key
from nmt_cli.translating.request import Request as Line
from nmt_cli.translating.translation import Translation

KEPT_SECONDS = 600.0
MOST_KEPT_BYTES = 1 << 28  # of all documents that wait
MARKUP_OF_A_CHARACTER = 40  # bytes; office documents have less, and reading takes 200 times that
MOST_DETECTED = 10_000  # characters, of which the language is detected
BINARY = "application/octet-stream"
FILE = Key("a file", "the document", {"type": "string", "format": "binary"}, is_needed=True)
LANGUAGE = Key("a string", "the code of a language", STRING)
TAG = re.compile(r"<[^<>]*>")


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

    async def asked(self, fields: Mapping[str, Any], *, source: str, target: str) -> Asked:
        """Return the document in the field ``file``; these fields name the languages.

        Raises RefusedError if it cannot be read or is too large, or if no model has the languages.
        """
        upload = fields.get("file")
        if not isinstance(upload, Upload):
            raise RefusedError(400, "file must be a file, in a form of several parts")
        codes = str(fields.get(source) or "auto"), str(fields.get(target, ""))
        model = None if codes[0] == "auto" else self._service.model(*codes)
        document = await self._service.aside(True, _read, upload, self._service, model)
        if model is None:
            model = await self._service.aside(True, self._detected, document, codes[1])
        return Asked(upload, document, model)

    def _detected(self, document: Document, target: str) -> Model | None:
        """Return the model for the language of a document, which is detected."""
        texts = "\n".join(TAG.sub("", segment.text) for segment in document.segments)
        (choice,) = self._service.choices([texts[:MOST_DETECTED]], target)
        return choice.model

    async def translated(self, http: Request | None, asked: Asked) -> bytes:
        """Return the document with translations; without ``http`` also if the client goes away.

        Raises RefusedError if a segment cannot be translated, or if it takes too long.
        """
        if asked.model is None:
            return asked.upload.data
        patterns = self._service.patterns(asked.model)
        lines, places = await self._service.aside(True, _lines, asked, patterns)
        models = [asked.model] * len(lines)
        translations = await self._service.translate(http, models, lines)
        return await self._service.aside(True, _filled, asked.document, translations, places)

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
            kept.data = await self.translated(None, asked)
            kept.num_bytes = len(kept.data)
        except RefusedError as error:
            kept.error = error.message
        except Exception:
            logs.warning(
                f"request {REQUEST_ID.get()}: a document met a bug:\n{traceback.format_exc()}"
            )
            kept.error = "it met a bug; the log of the server has its traceback"

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


def _read(upload: Upload, service: Service, model: Model | None) -> Document:
    """Return the document that was sent, for ``model``, if that is known.

    Raises RefusedError if it cannot be translated.
    """
    form = format_of(upload.name)
    if form is None:
        endings = ", ".join(each for names in ENDINGS.values() for each in names)
        raise RefusedError(400, f"the name of the file must end in one of {endings}")
    languages = None if model is None else (model.source, model.target)
    if languages is None and form in NEED_LANGUAGES:
        raise RefusedError(400, f"a document of {form} needs the language of its source")
    most = MARKUP_OF_A_CHARACTER * service.limits.characters
    if (num_bytes := markup_bytes(upload.data)) > most:
        raise RefusedError(413, f"{num_bytes:,} bytes of markup are more than {most:,}")
    try:
        document = read_document(upload.data, form, languages=languages)
    except DocumentError as error:
        raise RefusedError(400, f"the file cannot be read as {form}: {error}") from None
    except UserError as error:
        raise RefusedError(501, str(error)) from None
    service.limits.refuse_large([segment.text for segment in document.segments])
    return document


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
    document: Document, translations: Sequence[Translation], places: Sequence[int]
) -> bytes:
    for number, translation in enumerate(translations, 1):
        if translation.error is not None:
            message = f"segment {number:,} could not be translated: {translation.error}"
            raise RefusedError(400, message)
    return document.filled([translations[place] for place in places])
