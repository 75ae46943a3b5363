"""Documents of requests: they are translated in memory, and wait there until they are fetched."""

from __future__ import annotations

import asyncio
import secrets
import traceback
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from hmac import compare_digest
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from nmt_cli.hardware.memory import return_freed_memory
from nmt_cli.messages import logs
from nmt_cli.serving.read_documents import ReadDocument, fill_document
from nmt_cli.serving.requests import REQUEST_ID, RefusedError
from nmt_cli.serving.served import Sent, Served
from nmt_cli.serving.service import Fields, Service, note_texts
from nmt_cli.translating.interface.record_keys import COUNT, STRING, Key, objects
from nmt_cli.translating.interface.translation import Translation
from nmt_cli.translating.workers.worker_process import BUG

KEPT_SECONDS = 600.0
MOST_KEPT_BYTES = 1 << 28  # of all documents that wait
MOST_READ_BYTES = 1 << 24  # of bodies or of markup, in all documents that are being translated
BINARY = "application/octet-stream"
FILE = Key({"type": "string", "format": "binary"}, "the document", is_needed=True, words="a file")
LANGUAGE = Key(STRING, "the code of a language")
FAILED = objects(
    "the segments that could not be translated and stay as they are, at most 100",
    {
        "segment": Key(COUNT, "which one it is", is_needed=True),
        "text": Key(STRING, "its first characters", is_needed=True),
        "error": Key(STRING, "the reason", is_needed=True),
    },
)

Reading = Callable[[Served, Fields], ReadDocument]


class Kept:
    """A document that is translated, or will be; ``name`` and ``key`` are secret."""

    def __init__(self, read: ReadDocument) -> None:
        self.ending, self.num_characters = read.ending, read.num_characters
        self.name, self.key = secrets.token_urlsafe(24) + self.ending, secrets.token_urlsafe(24)
        self.num_bytes = read.num_sent
        self.data: bytes | None = None
        self.failed: Sequence[Mapping[str, Any]] = ()  # segments that stay as they are
        self.error: str | None = None
        self.end: asyncio.TimerHandle | None = None  # when it is no longer kept

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


class _InProgress:
    """A document that is read and translated; ``num_bytes`` are those of its body or its markup."""

    read: ReadDocument

    def __init__(self, sent: Sent) -> None:
        self.sent, self.num_bytes = sent, 0


class Documents:
    """Translates documents by a service, and keeps each for a while.

    It runs in the event loop of the service.
    """

    def __init__(self, service: Service) -> None:
        self._service, self._kept = service, dict[str, Kept]()
        self._tasks = set[asyncio.Task[None]]()
        self._in_progress = set[_InProgress]()

    async def translated(self, http: Request, reading: Reading) -> Kept:
        """Return the translation of the document that ``reading`` finds in a request.

        Raises RefusedError if it is too large or cannot be translated, or if too much is kept.
        """
        async with self._read(http, reading) as document:
            kept = self._keep(document.read)
            try:
                await self._translate(http, document, kept)
            finally:
                if kept.data is None:
                    self.discard(kept)
        return kept

    async def started(self, http: Request, reading: Reading) -> Kept:
        """Return a place for the translation of a document, which a task fills meanwhile."""
        async with AsyncExitStack() as stack:
            document = await stack.enter_async_context(self._read(http, reading))
            kept = self._keep(document.read)
            task = asyncio.create_task(self._fill(kept, document, stack.pop_all()))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return kept

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
        if kept.end is not None:
            kept.end.cancel()  # it would hold the document until then
            asyncio.get_running_loop().call_later(1.0, return_freed_memory)

    @asynccontextmanager
    async def _read(self, http: Request, reading: Reading) -> AsyncIterator[_InProgress]:
        """Read a document, which is in progress until the end of the block."""
        async with AsyncExitStack() as stack:
            async with self._service.sent(http, has_document=True) as sent:
                document = _InProgress(sent)
                stack.callback(self._in_progress.discard, document)
                self._take_room(document, len(sent.body))  # before anything else is awaited
                document.read = read = await self._service.read_aside(http, sent, reading)
                note_texts(http, read.num_characters, [read.model] if read.model else [])
                self._take_room(document, max(len(sent.body), document.read.num_bytes))
            yield document

    def _take_room(self, document: _InProgress, num_bytes: int) -> None:
        others = self._in_progress - {document}
        if others and sum(each.num_bytes for each in others) + num_bytes > MOST_READ_BYTES:
            raise RefusedError(503, "too many documents are being translated", retry_after=1)
        document.num_bytes = num_bytes
        self._in_progress.add(document)

    async def _translate(self, http: Request | None, document: _InProgress, kept: Kept) -> None:
        """Fill ``kept`` with the translation; without ``http`` also if the client goes away.

        Raises RefusedError if no segment can be translated, or if it takes too long.
        """
        service, sent, read = self._service, document.sent, document.read
        found: list[Translation] | None = None
        if read.model is not None:
            models = [read.model] * len(read.lines)
            translations = await service.translate(http, models, read.lines)
            # No format writes the pieces.
            texts = [Translation(each.text, error=each.error) for each in translations]
            found = [texts[place] for place in read.places]
        work = service.readers(
            sent.num_bytes, fill_document, sent, read.name, read.languages, found
        )
        data, kept.failed = await service.unless_gone(http, work)
        kept.data, kept.num_bytes = data, len(data)

    def _keep(self, read: ReadDocument) -> Kept:
        """Return a place for the translation, which is emptied after a while.

        Raises RefusedError if too much is kept already.
        """
        kept = Kept(read)
        if sum(each.num_bytes for each in self._kept.values()) + kept.num_bytes > MOST_KEPT_BYTES:
            raise RefusedError(503, "too many documents are kept", retry_after=60)
        self._kept[kept.name] = kept
        kept.end = asyncio.get_running_loop().call_later(KEPT_SECONDS, self.discard, kept)
        return kept

    async def _fill(self, kept: Kept, document: _InProgress, end: AsyncExitStack) -> None:
        async with end:
            try:
                await self._translate(None, document, kept)
            except RefusedError as error:
                kept.error = error.message
            except Exception:
                logs.warning(
                    f"request {REQUEST_ID.get()}: a document met a bug:\n{traceback.format_exc()}"
                )
                kept.error = BUG
