"""What requests are read with: models, glossaries and limits, also in the processes that read.

A function that reads a request gets a ``Served`` and the fields of the request, and returns what
the service needs to know of it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from nmt_cli.corpus.text.language_codes import fits, label_of
from nmt_cli.serving import requests as reading
from nmt_cli.serving.languages import Detected, Detector, name_of
from nmt_cli.serving.models import TAG, ChosenModel, Model, Models, Patterns, ServedGlossary
from nmt_cli.serving.requests import Limits, RefusedError
from nmt_cli.translating.interface.request import NO_TAG_RULES, TagRules
from nmt_cli.translating.interface.request import Request as Line

KEY_FIELDS = ("api_key", "auth_key")
MOST_KEYS = 10  # of a request
DECIDED = 0.8  # the confidence of a detected language; a text with less follows the other texts

T = TypeVar("T")


class Options(NamedTuple):
    """What operators choose beside the models."""

    limits: Limits
    glossaries: Sequence[ServedGlossary] = ()
    patterns: Patterns = Patterns()
    keys: Sequence[str] | None = None  # requests need one of them; None: they need none
    origins: Sequence[str] = ()  # of pages that may ask in browsers
    drain_seconds: float = 0.0  # for what was accepted, after a signal
    logs_text: bool = False


class Sent(NamedTuple):
    """A request as it was sent."""

    query: Mapping[str, Any]
    content_type: str | None  # of the body; None: it is a JSON object
    body: bytes
    has_key: bool  # in its head or query, and a right one
    num_bytes: int  # of its query, its Content-Type and its body


class Texts(NamedTuple):
    """Texts of several lines, or markup, and the model for each."""

    texts: Sequence[str]
    models: Sequence[Model | None]  # None: the text stays as it is
    markup: Any = None  # "html", "xml"
    num_alternatives: int = 0
    cuts: bool = True  # whether each sentence is translated by itself
    glossary: ServedGlossary | None = None
    tags: TagRules = NO_TAG_RULES  # of the markup


class LinesOfTexts(NamedTuple):
    """The lines of all texts, the model for each, and how many lines each text has."""

    lines: Sequence[Line]
    models: Sequence[Model]
    counts: Sequence[int]
    kept: Sequence[str]  # the texts that have no lines: they stay as they are


class Served:
    """The models, glossaries, patterns, keys and limits of a service."""

    def __init__(self, models: Models, options: Options) -> None:
        self.models, self.limits, self.glossaries = models, options.limits, options.glossaries
        self.detector, self._patterns = Detector(models.languages), options.patterns
        self.has_keys = options.keys is not None  # requests need one of them
        self._keys = [_digest(key) for key in options.keys or ()]

    def fields(self, sent: Sent) -> dict[str, Any]:
        """Return the fields of the query and of the body, without the keys of users.

        Raises RefusedError if they cannot be read, or if the only key is there and is wrong.
        """
        if sent.content_type is None:
            fields = reading.json_object(sent.body)
        else:
            fields = reading.body_fields(sent.content_type, sent.body)
        in_body = taken_keys(fields)
        if not sent.has_key:
            self.refuse_strangers(in_body)
        return {**sent.query, **fields}

    def refuse_strangers(self, keys: Sequence[str]) -> None:
        """Raise RefusedError if a key is needed, and none of ``keys`` is right."""
        if not self.has_keys:
            return
        # All are compared, so that the time does not depend on which one is right.
        found = [hmac.compare_digest(_digest(k), known) for k in keys for known in self._keys]
        if not any(found):
            what = "this is no key of this service" if keys else "this service needs an API key"
            raise RefusedError(403, what)

    def choices(self, texts: Sequence[str], target: str) -> list[ChosenModel]:
        """Return the language of each text and the model that translates it into ``target``.

        A text with no certain language has that of the others, or of the only model. It stays as
        it is where nothing decides, and so does a text in the target language. Raises RefusedError
        if no model translates into ``target``, or a text of a certain language, or if a text is
        in a language of no model.
        """
        possible = dict[str, str]()  # sources by their labels
        fitting = [model for model in self.models.every if fits(target, model.target)]
        for model in fitting:
            possible.setdefault(label_of(model.source), model.source)
        if not possible:
            self.models.find(None, target)  # raises
        for text in texts:
            if foreign := self.detector.foreign(TAG.sub(" ", text).strip()):
                looks_like = f"This looks like {name_of(foreign.language)}"
                raise RefusedError(400, f"{looks_like}; models: {self.models.pairs}")
        ranked = [self.detector.detect(text) for text in texts]
        certain = Counter[str]()  # characters
        for text, (first, *_) in zip(texts, ranked, strict=True):
            label = label_of(first.language)
            if first.confidence >= DECIDED and label in {*possible, label_of(target)}:
                certain[label] += len(text)
        # What is not certain needs no second model.
        likely = {label_of(model.source) for model in fitting if not model.steps}
        only = next(iter(likely)) if len(likely) == 1 else None
        usual = certain.most_common(1)[0][0] if certain else only
        return [self._choice(each, possible, likely, usual, target) for each in ranked]

    def _choice(
        self,
        ranked: Sequence[Detected],
        possible: Mapping[str, str],
        likely: Collection[str],
        usual: str | None,
        target: str,
    ) -> ChosenModel:
        """Return the choice for a text.

        If its language is not certain, it is ``usual``, or else one of ``likely``.
        """
        first = ranked[0]
        is_certain = first.confidence >= DECIDED
        wanted = label_of(first.language) if is_certain else usual
        for each in ranked:
            label = label_of(each.language)
            is_likely = each.confidence > 0 and label in likely
            if label in possible and (is_likely if wanted is None else label == wanted):
                return ChosenModel(each, self.models.find(possible[label], target))
        if is_certain and label_of(first.language) != label_of(target):
            self.models.find(first.language, target)  # raises
        return ChosenModel(first, None)

    def glossary(self, name: str, model: Model | None = None) -> ServedGlossary:
        """Return the glossary of this name, for ``model``. Raises RefusedError if there is none."""
        for glossary in self.glossaries:
            if glossary.name == name and (model is None or glossary.fits(model)):
                return glossary
        raise RefusedError(404, f"there is no glossary {name!r} for these languages")

    def with_glossary(self, name: str, model: Model) -> tuple[Model, ServedGlossary | None]:
        """Return ``model``, and the glossary of this name whose terms are searched in the text.

        A glossary for the second step of a pivot is not returned: the model names it in ``terms``,
        because the second step searches the output of the first. Raises RefusedError if there is no
        such glossary.
        """
        found = self.glossary(name, model)
        if model.steps and not found.fits(model.steps[0]):
            return model._replace(terms=name), None
        return model, found

    def patterns(self, model: Model, names: Sequence[str] | None = None) -> list[str]:
        """Return the patterns of these names; None: those that are for each line of ``model``.

        Raises RefusedError if a name is unknown.
        """
        return [] if names is None and model.parses else self._patterns.chosen(names)

    def lines_of(self, asked: Texts) -> LinesOfTexts:
        """Return what is translated of some texts: each line of one by itself."""
        lines, models, counts, kept = list[Line](), list[Model](), list[int](), list[str]()
        for text, model in zip(asked.texts, asked.models, strict=True):
            if model is None:
                counts.append(0)
                kept.append(text)
                continue
            of_text = [text] if asked.markup else text.split("\n")
            n_best = min(1 + asked.num_alternatives, model.beam_size)
            protect, split = self.patterns(model), asked.cuts and not model.parses
            for each in of_text:
                line = Line(each, n_best=n_best, split=split, protect=protect)
                if asked.glossary is not None:
                    line = line._replace(glossary=asked.glossary.for_line(each, asked.markup))
                lines.append(line._replace(markup=asked.markup, tags=asked.tags))
            models += [model] * len(of_text)
            counts.append(len(of_text))
        return LinesOfTexts(lines, models, counts, kept)


def read(served: Served, sent: Sent, function: Callable[[Served, dict[str, Any]], T]) -> T:
    """Return what ``function`` makes of the fields of a request."""
    return function(served, served.fields(sent))


def nothing(_: Served, __: Mapping[str, Any]) -> None:
    """Read nothing of the fields of a request, which may have had a key."""


def taken_keys(fields: dict[str, Any]) -> list[str]:
    """Return the first keys of users that ``fields`` has, and remove all from it."""
    given = [fields.pop(name) for name in KEY_FIELDS if name in fields]
    found = [key for each in given for key in (each if isinstance(each, list) else [each])]
    return [str(key) for key in found[:MOST_KEYS] if isinstance(key, str | int)]


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
