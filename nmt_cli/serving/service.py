"""What the service does with a request of any interface: it waits for the translations."""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NamedTuple, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from nmt_cli.messages import logs
from nmt_cli.serving import pivots
from nmt_cli.serving import requests as reading
from nmt_cli.serving.models import Model, Models
from nmt_cli.serving.readers import Readers
from nmt_cli.serving.requests import REQUEST_ID, RefusedError
from nmt_cli.serving.served import LinesOfTexts, Options, Sent, Served, read, taken_keys
from nmt_cli.translating.interface.record_keys import Key
from nmt_cli.translating.interface.request import Request as Line
from nmt_cli.translating.interface.translation import Translation, in_groups, kth_of_each
from nmt_cli.translating.workers.dispatcher import Dispatcher, WorkerFigures
from nmt_cli.translating.workers.messages import AttentionOf
from nmt_cli.translating.workers.worker_process import Batch

KEY_SCHEMES = ("bearer", "deepl-auth-key")
# Most bytes of a request that is read in the event loop, which answers nothing else meanwhile.
# The slowest one that was found is a glossary with terms of many lengths for one word: it takes
# 46 ms at 3,000 bytes, and 124 ms at 8,000 bytes.
SMALL_REQUEST = 3_000
TEXTS_OF_REQUEST = "nmt_cli.texts"  # in the scope of a request: what the log says of its texts
SECONDS_OF_A_TURN = 0.01  # of work on an answer; then others are answered

T = TypeVar("T")
Fields = dict[str, Any]
AnyLines = Sequence[Line | AttentionOf]


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


class Service:
    """The models of the service and what translates with each, for all interfaces.

    ``state`` is "starting", "ready" or "draining". It runs in one event loop.
    """

    def __init__(
        self, models: Models, translating: Mapping[str, Dispatcher], options: Options
    ) -> None:
        """``translating`` has an entry for the name of each model."""
        self.models, self.options, self.limits = models, options, options.limits
        self.state, self.served = "starting", Served(models, options)
        self.num_characters = self.num_inside = 0  # requests that are being translated
        self._translating = translating
        self.readers = Readers(self.served, self.limits.seconds)
        # Those of clients whose key is known have room of their own.
        self._bodies = {is_known: reading.BodiesInMemory() for is_known in (False, True)}

    @property
    def health(self) -> str:
        """The state, or "stuck" if it is ready, but no worker of a model answers."""
        is_stuck = any(figures.is_stuck for figures in self.figures_of_models().values())
        return "stuck" if self.state == "ready" and is_stuck else self.state

    async def asked(
        self,
        http: Request,
        function: Callable[[Served, Fields], T],
        *,
        only_json: bool = False,
        takes_long: Callable[[Fields], object] = lambda fields: False,
    ) -> T:
        """Return what ``function`` makes of the fields of a JSON object, a form or the query.

        It is called in another process if the request is large, or if it ``takes_long``. Raises
        RefusedError if there are no fields or if the key of the request is wrong.
        """
        async with self.sent(http, only_json=only_json) as sent:
            if sent.num_bytes <= SMALL_REQUEST:
                fields = self.served.fields(sent)
                if not takes_long(fields):
                    return function(self.served, fields)
            return await self.read_aside(http, sent, function)

    @asynccontextmanager
    async def sent(
        self, http: Request, *, only_json: bool = False, has_document: bool = False
    ) -> AsyncIterator[Sent]:
        """Return a request whose body has come; a body that ``has_document`` may be larger.

        The body is not read if a key in the head is wrong. Only if there is none, clients may give
        it in the body, which then has to be read first. Raises RefusedError.
        """
        query = {} if only_json else reading.query_fields(http)
        scheme, _, given = http.headers.get("authorization", "").partition(" ")
        keys = [given.strip()] if scheme.lower() in KEY_SCHEMES else []
        keys += taken_keys(query)
        if keys:
            self.served.refuse_strangers(keys)
        most = self.limits.document_bytes if has_document else self.limits.body_bytes
        limits = self.limits._replace(body_bytes=most)
        bodies = self._bodies[bool(keys) and self.served.has_keys]
        kind = None if only_json else http.headers.get("content-type", "")
        async with reading.body_of(http, limits, bodies) as body:
            num_bytes = len(http.scope["query_string"]) + len(kind or "") + len(body)
            yield Sent(query, kind, body, bool(keys), num_bytes)

    async def read_aside(
        self, http: Request, sent: Sent, function: Callable[[Served, Fields], T]
    ) -> T:
        """Return what ``function`` makes of the fields of a request, in another process.

        Raises RefusedError if too many requests wait for that, or what ``function`` raises, and
        ClientDisconnect if the client goes away.
        """
        if not (sent.has_key and self.served.has_keys):
            self.readers.refuse_if_full()
        return await self.unless_gone(http, self.readers(sent.num_bytes, read, sent, function))

    async def unless_gone(self, http: Request | None, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of ``work``, or raise ClientDisconnect if the client goes away."""
        waiting = asyncio.create_task(work)
        gone = asyncio.ensure_future(_gone(http))
        try:
            await asyncio.wait({waiting, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                raise ClientDisconnect
            return waiting.result()
        finally:
            gone.cancel()
            waiting.cancel()

    async def translate_texts(self, http: Request, asked: LinesOfTexts) -> list[list[str]]:
        """Return for each text its translation, and after it the alternatives, best first.

        Each line of a text is translated by itself. Raises RefusedError if one cannot be.
        """
        translations = await self.translate(http, asked.models, asked.lines)
        kept, groups = iter(asked.kept), in_groups(translations, asked.counts)
        joined = (_joined(lines) if lines else [next(kept)] for lines in groups)
        return [each async for each in in_turns(joined)]

    async def translate(
        self, http: Request | None, models: Sequence[Model], lines: Sequence[Line]
    ) -> list[Translation]:
        """Return the translation of each line by the model at its place.

        Raises RefusedError if there are too many, or if they take too long, and ClientDisconnect
        if the client of ``http`` goes away: then they are withdrawn.
        """
        with self._accepted(http, models, lines) as end:
            translations = await self._translations(http, models, lines, end)
        if self.options.logs_text:
            async for line, found in in_turns(zip(lines, translations, strict=True)):
                logs.info(f"request {REQUEST_ID.get()}: {line.text!r} -> {found.text!r}")
        return translations

    async def attention(self, http: Request, model: Model, wanted: AttentionOf) -> str:
        """Return a page with the attention of a sentence pair.

        Raises RefusedError if it cannot be shown or takes too long, and ClientDisconnect if the
        client goes away.
        """
        with self._accepted(http, [model], [wanted]) as end:
            (answer,) = await self._answers(http, [model], [wanted], end)
        if answer.error is not None:
            raise RefusedError(400, answer.error)
        return answer.text

    @contextmanager
    def _accepted(
        self, http: Request | None, models: Sequence[Model], lines: AnyLines
    ) -> Iterator[float]:
        """Yield the time, of the loop, until which the lines must be translated.

        Raises RefusedError if they are too many, or if the service is busy. What is accepted is
        finished: its second step is not refused.
        """
        if http is not None:
            note_texts(http, sum(len(line.text) for line in lines), models)
        self._refuse_if_busy(models, lines)
        self.num_inside += 1
        try:
            yield asyncio.get_running_loop().time() + self.limits.seconds
        finally:
            self.num_inside -= 1

    async def _translations(
        self, http: Request | None, models: Sequence[Model], lines: Sequence[Line], end: float
    ) -> list[Translation]:
        through = {place: model for place, model in enumerate(models) if model.steps}
        steps = [model.steps[0] for model in through.values()]
        asked = [pivots.first_line(model, lines[place]) for place, model in through.items()]
        between = dict(zip(through, await self._answers(http, steps, asked, end), strict=True))
        asked = [model.asked(line) for model, line in zip(models, lines, strict=True)]
        async for place, model in in_turns(through.items()):  # terms may have to be found
            terms = self.served.glossary(model.terms) if model.terms else None
            asked[place] = pivots.second_line(model, lines[place], between[place], terms)
        steps = [model.steps[1] if model.steps else model for model in models]
        found = await self._answers(http, steps, asked, end)
        async for place, model in in_turns(through.items()):
            found[place] = pivots.joined(model, between[place], found[place])
        return found

    async def _answers(
        self, http: Request | None, models: Sequence[Model], lines: AnyLines, end: float
    ) -> list[Translation]:
        places: dict[str, list[int]] = {}
        for place, model in enumerate(models):
            places.setdefault(model.name, []).append(place)
        batches = {
            name: Batch([lines[place] for place in of_model], f"request {REQUEST_ID.get()}")
            for name, of_model in places.items()
        }
        for name, batch in batches.items():
            self._translating[name].submit(batch)
        try:
            await self._wait(http, [batch.done for batch in batches.values()], end)
        finally:
            for name, batch in batches.items():
                if not batch.done.done():
                    self._translating[name].withdraw(batch)
        found = dict[int, Translation]()
        for name, of_model in places.items():
            answers = zip(of_model, batches[name].answers, strict=True)
            found.update((place, each) for place, each in answers if isinstance(each, Translation))
        return [found[place] for place in range(len(lines))]

    def figures_of_models(self) -> dict[str, WorkerFigures]:
        """Return the figures of what translates, by the name of the model."""
        return {name: each.figures() for name, each in self._translating.items()}

    def _refuse_if_busy(self, models: Sequence[Model], lines: AnyLines) -> None:
        if self.state != "ready":
            raise RefusedError(503, f"the service is {self.state}", retry_after=1)
        again = [line.text for line, model in zip(lines, models, strict=True) if model.steps]
        num_characters = self.limits.refuse_large([line.text for line in lines], again)
        num_waiting = sum(each.num_waiting for each in self._translating.values())
        num_lines = num_waiting + len(lines) + len(again)
        if num_waiting and num_lines > self.limits.waiting_lines:
            raise RefusedError(503, f"{num_waiting:,} lines wait already", retry_after=1)
        self.num_characters += num_characters

    async def _wait(
        self, http: Request | None, dones: Sequence[asyncio.Future[None]], end: float
    ) -> None:
        """Wait until all are done. Raises ClientDisconnect, or RefusedError after ``end``."""
        if dones:
            seconds = end - asyncio.get_running_loop().time()
            _, others = await self.unless_gone(http, asyncio.wait(dones, timeout=seconds))
            if others:
                message = f"it was not translated within {self.limits.seconds:g} seconds"
                raise RefusedError(503, message, retry_after=1)


def note_texts(http: Request, num_characters: int, models: Iterable[Model]) -> None:
    """Note for the log how much a request translates, and its languages; the first note stays."""
    chains = [[model.source, model.through, model.target] for model in models]
    pairs = dict.fromkeys(" to ".join(filter(None, chain)) for chain in chains)
    parts = [f"{num_characters:,} characters", *pairs]
    http.scope.setdefault(TEXTS_OF_REQUEST, ", ".join(parts))


async def _gone(http: Request | None) -> None:
    """Wait until the client has gone away; the body must have been read. No client stays."""
    if http is None:
        await asyncio.Event().wait()
        return
    while (await http.receive())["type"] != "http.disconnect":
        pass


async def in_turns(work: Iterable[T]) -> AsyncIterator[T]:
    """Yield what ``work`` yields; other requests are answered in between."""
    loop = asyncio.get_running_loop()
    end = loop.time() + SECONDS_OF_A_TURN
    for each in work:
        yield each
        if loop.time() > end:
            await asyncio.sleep(0)
            end = loop.time() + SECONDS_OF_A_TURN


def _joined(lines: Sequence[Translation]) -> list[str]:
    """Return the n best translations of a text of these lines, each with line feeds between them.

    The k-th joins the k-th of each line, or its last. Raises RefusedError if a line has failed.
    """
    for line in lines:
        if line.error is not None:
            raise RefusedError(400, f"the text could not be translated: {line.error}")
    of_each = [[line.text, *(each.text for each in line.alternatives)] for line in lines]
    return ["\n".join(texts) for texts in kth_of_each(of_each)]
