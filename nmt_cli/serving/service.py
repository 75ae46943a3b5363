"""What the service does with a request of any interface: it waits for the translations."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from nmt_cli.corpus.text.language_codes import label_of
from nmt_cli.messages import logs
from nmt_cli.serving import requests as reading
from nmt_cli.serving.languages import Detected, Detector, fits
from nmt_cli.serving.models import Choice, Model, Models, Patterns, ServedGlossary
from nmt_cli.serving.requests import REQUEST_ID, Limits, RefusedError, is_large
from nmt_cli.translating.record_keys import Key
from nmt_cli.translating.request import Request as Line
from nmt_cli.translating.translation import Translation, in_groups, kth_of_each
from nmt_cli.translating.workers.dispatcher import Dispatcher, WorkerFigures
from nmt_cli.translating.workers.messages import AttentionOf
from nmt_cli.translating.workers.worker_process import Batch

KEY_FIELDS = ("api_key", "auth_key")
MOST_KEYS = 10  # of a request
KEY_SCHEMES = ("bearer", "deepl-auth-key")
DECIDED = 0.8  # the confidence of a detected language; a text with less follows the other texts


class Texts(NamedTuple):
    """Texts of several lines, or markup, and the model for each."""

    texts: Sequence[str]
    models: Sequence[Model | None]  # None: the text stays as it is
    markup: Any = None  # "html", "xml"
    num_alternatives: int = 0
    cuts: bool = True  # whether each sentence is translated by itself
    glossary: ServedGlossary | None = None


class Options(NamedTuple):
    """What operators choose beside the models."""

    limits: Limits
    glossaries: Sequence[ServedGlossary] = ()
    patterns: Patterns = Patterns()
    keys: Sequence[str] | None = None  # requests need one of them; None: they need none
    origins: Sequence[str] = ()  # of pages that may ask in browsers
    drain_seconds: float = 0.0  # for what was accepted, after a signal
    logs_text: bool = False


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
        self.state, self.detector = "starting", Detector(models.languages)
        self.num_characters = self.num_inside = 0  # requests that are being translated
        self._translating = translating
        self.aside = reading.Aside(self.limits.seconds)
        # Those of clients whose key is known have room of their own.
        self._held = {is_known: reading.Held() for is_known in (False, True)}
        self.has_keys = options.keys is not None  # requests need one of them
        self._keys = [_digest(key) for key in options.keys or ()]

    @property
    def health(self) -> str:
        """The state, or "stuck" if it is ready, but no worker of a model answers."""
        is_stuck = any(figures.is_stuck for figures in self.figures_of_models().values())
        return "stuck" if self.state == "ready" and is_stuck else self.state

    async def record(self, http: Request) -> dict[str, Any]:
        """Return the JSON object in the body of a request.

        Raises RefusedError if there is none, or if the key of the request is wrong.
        """
        return await self._read(http, {}, reading.json_object, self.limits)

    async def fields(self, http: Request, *, has_document: bool = False) -> dict[str, Any]:
        """Return the fields of a JSON object, a form or the query.

        A body that ``has_document`` may be larger. Raises RefusedError if there are none, or if the
        key of the request is wrong.
        """
        is_long = len(http.scope["query_string"]) > reading.SMALL_REQUEST
        if is_long:
            self.aside.refuse_if_full()
        query = await self.aside(is_long, reading.query_fields, http)
        kind = http.headers.get("content-type", "")
        most = self.limits.document_bytes if has_document else self.limits.body_bytes
        limits = self.limits._replace(body_bytes=most)
        return await self._read(http, query, partial(reading.body_fields, kind), limits)

    async def _read(
        self,
        http: Request,
        query: dict[str, Any],
        parse: Callable[[bytes], dict[str, Any]],
        limits: Limits,
    ) -> dict[str, Any]:
        """Return the fields of the query and of the body, without the keys of users.

        The body is not read if a key in the head is wrong. Only if there is none, clients may give
        it in the body, which then has to be read first.
        """
        scheme, _, given = http.headers.get("authorization", "").partition(" ")
        keys = [given.strip()] if scheme.lower() in KEY_SCHEMES else []
        keys += _taken_keys(query)
        if keys:
            self._refuse_strangers(keys)
        is_known = bool(keys) and self.has_keys
        async with reading.body_of(http, limits, self._held[is_known]) as body:
            if is_large(http) and not is_known:
                self.aside.refuse_if_full()
            fields = await self.aside(is_large(http), parse, body)
        in_body = _taken_keys(fields)
        if not keys:
            self._refuse_strangers(in_body)
        return {**query, **fields}

    def _refuse_strangers(self, keys: Sequence[str]) -> None:
        if not self.has_keys:
            return
        # All are compared, so that the time does not depend on which one is right.
        found = [hmac.compare_digest(_digest(k), known) for k in keys for known in self._keys]
        if not any(found):
            what = "this is no key of this service" if keys else "this service needs an API key"
            raise RefusedError(403, what)

    def choices(self, texts: Sequence[str], target: str) -> list[Choice]:
        """Return the language of each text and the model that translates it into ``target``.

        A text with no certain language has that of the others, or of the only model. It stays as
        it is where nothing decides, and so does a text in the target language. Raises RefusedError
        if no model translates into ``target``, or a text of a certain language.
        """
        possible = dict[str, str]()  # sources by their labels
        for model in self.models.models:
            if fits(target, model.target):
                possible.setdefault(label_of(model.source), model.source)
        if not possible:
            self.models.find(None, target)  # raises
        ranked = [self.detector.detect(text) for text in texts]
        certain = Counter[str]()  # characters
        for text, (first, *_) in zip(texts, ranked, strict=True):
            label = label_of(first.language)
            if first.confidence >= DECIDED and label in {*possible, label_of(target)}:
                certain[label] += len(text)
        only = next(iter(possible)) if len(possible) == 1 else None
        usual = certain.most_common(1)[0][0] if certain else only
        return [self._choice(each, possible, usual, target) for each in ranked]

    def _choice(
        self,
        ranked: Sequence[Detected],
        possible: Mapping[str, str],
        usual: str | None,
        target: str,
    ) -> Choice:
        """Return the choice for a text; if its language is not certain, it is ``usual``."""
        first = ranked[0]
        is_certain = first.confidence >= DECIDED
        wanted = label_of(first.language) if is_certain else usual
        for each in ranked:
            label = label_of(each.language)
            is_wanted = each.confidence > 0 if wanted is None else label == wanted
            if is_wanted and label in possible:
                return Choice(each, self.models.find(possible[label], target))
        if is_certain and label_of(first.language) != label_of(target):
            self.models.find(first.language, target)  # raises
        return Choice(first, None)

    def glossary(self, name: str, model: Model | None = None) -> ServedGlossary:
        """Return the glossary of this name, for ``model``. Raises RefusedError if there is none."""
        for glossary in self.options.glossaries:
            if glossary.name == name and (model is None or glossary.fits(model)):
                return glossary
        raise RefusedError(404, f"there is no glossary {name!r} for these languages")

    def patterns(self, model: Model, names: Sequence[str] | None = None) -> list[str]:
        """Return the patterns of these names; None: those that are for each line of ``model``.

        Raises RefusedError if a name is unknown.
        """
        return [] if names is None and model.parses else self.options.patterns.chosen(names)

    async def translate_texts(self, http: Request, asked: Texts) -> list[list[str]]:
        """Return for each text its translation, and after it the alternatives, best first.

        Each line of a text is translated by itself. Raises RefusedError if one cannot be.
        """
        models, lines, counts = await self.aside(is_large(http), _lines, asked, self.patterns)
        translations = await self.translate(http, models, lines)
        return await self.aside(is_large(http), _texts, asked, translations, counts)

    async def translate(
        self, http: Request | None, models: Sequence[Model], lines: Sequence[Line]
    ) -> list[Translation]:
        """Return the translation of each line by the model at its place.

        Raises RefusedError if there are too many, or if they take too long, and ClientDisconnect
        if the client of ``http`` goes away: then they are withdrawn.
        """
        translations = await self._answers(http, models, lines)
        if self.options.logs_text:
            await self.aside(
                http is None or is_large(http), _log, REQUEST_ID.get(), lines, translations
            )
        return translations

    async def attention(self, http: Request, model: Model, wanted: AttentionOf) -> str:
        """Return a page with the attention of a sentence pair.

        Raises RefusedError if it cannot be shown or takes too long, and ClientDisconnect if the
        client goes away.
        """
        (answer,) = await self._answers(http, [model], [wanted])
        if answer.error is not None:
            raise RefusedError(400, answer.error)
        return answer.text

    async def _answers(
        self, http: Request | None, models: Sequence[Model], lines: Sequence[Line | AttentionOf]
    ) -> list[Translation]:
        self._refuse_if_busy(lines)
        places: dict[str, list[int]] = {}
        for place, model in enumerate(models):
            places.setdefault(model.name, []).append(place)
        batches = {
            name: Batch([lines[place] for place in of_model], f"request {REQUEST_ID.get()}")
            for name, of_model in places.items()
        }
        for name, batch in batches.items():
            self._translating[name].submit(batch)
        self.num_inside += 1
        try:
            await self._wait(http, [batch.done for batch in batches.values()])
        finally:
            self.num_inside -= 1
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

    def _refuse_if_busy(self, lines: Sequence[Line | AttentionOf]) -> None:
        if self.state != "ready":
            raise RefusedError(503, f"the service is {self.state}", retry_after=1)
        num_characters = self.limits.refuse_large([line.text for line in lines])
        num_waiting = sum(each.num_waiting for each in self._translating.values())
        if num_waiting and num_waiting + len(lines) > self.limits.waiting_lines:
            raise RefusedError(503, f"{num_waiting:,} lines wait already", retry_after=1)
        self.num_characters += num_characters

    async def _wait(self, http: Request | None, dones: Sequence[asyncio.Future[None]]) -> None:
        """Wait until all are done. Raises ClientDisconnect, or RefusedError after too long."""
        gone = asyncio.ensure_future(_gone(http))
        deadline = asyncio.get_running_loop().time() + self.limits.seconds
        try:
            for done in dones:
                seconds = max(0.0, deadline - asyncio.get_running_loop().time())
                first = asyncio.FIRST_COMPLETED
                await asyncio.wait({done, gone}, timeout=seconds, return_when=first)
                if not done.done() and gone.done():
                    raise ClientDisconnect
                if not done.done():
                    message = f"it was not translated within {self.limits.seconds:g} seconds"
                    raise RefusedError(503, message, retry_after=1)
        finally:
            gone.cancel()


async def _gone(http: Request | None) -> None:
    """Wait until the client has gone away; the body must have been read. No client stays."""
    if http is None:
        await asyncio.Event().wait()
        return
    while (await http.receive())["type"] != "http.disconnect":
        pass


def _taken_keys(fields: dict[str, Any]) -> list[str]:
    """Return the first keys of users that ``fields`` has, and remove all from it."""
    given = [fields.pop(name) for name in KEY_FIELDS if name in fields]
    found = [key for each in given for key in (each if isinstance(each, list) else [each])]
    return [str(key) for key in found[:MOST_KEYS] if isinstance(key, str | int)]


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def _lines(
    asked: Texts, patterns: Callable[[Model], Sequence[str]]
) -> tuple[list[Model], list[Line], list[int]]:
    """Return the lines of all texts, the model for each, and how many lines each text has."""
    models, lines, counts = list[Model](), list[Line](), list[int]()
    for text, model in zip(asked.texts, asked.models, strict=True):
        if model is None:
            counts.append(0)
            continue
        of_text = [text] if asked.markup else text.split("\n")
        n_best = min(1 + asked.num_alternatives, model.beam_size)
        protect, split = patterns(model), asked.cuts and not model.parses
        for each in of_text:
            line = Line(each, n_best=n_best, split=split, protect=protect)
            if asked.glossary is not None:
                line = line._replace(glossary=asked.glossary.for_line(each, asked.markup))
            lines.append(line._replace(markup=asked.markup))
        models += [model] * len(of_text)
        counts.append(len(of_text))
    return models, lines, counts


def _log(request_id: str, lines: Sequence[Line], translations: Sequence[Translation]) -> None:
    for line, translation in zip(lines, translations, strict=True):
        logs.info(f"request {request_id}: {line.text!r} -> {translation.text!r}")


def _texts(
    asked: Texts, translations: Sequence[Translation], counts: Sequence[int]
) -> list[list[str]]:
    """Return the n best translations of each text; ``counts`` are those of their lines."""
    of_each = zip(asked.texts, in_groups(translations, counts), strict=True)
    return [_joined(lines) if lines else [text] for text, lines in of_each]


def _joined(lines: Sequence[Translation]) -> list[str]:
    """Return the n best translations of a text of these lines, each with line feeds between them.

    The k-th joins the k-th of each line, or its last. Raises RefusedError if a line has failed.
    """
    for line in lines:
        if line.error is not None:
            raise RefusedError(400, f"the text could not be translated: {line.error}")
    of_each = [[line.text, *(each.text for each in line.alternatives)] for line in lines]
    return ["\n".join(texts) for texts in kth_of_each(of_each)]
