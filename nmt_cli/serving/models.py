"""The models, glossaries and patterns of a service, and which of them a request means."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from nmt_cli.corpus.text.glossary import Glossary
from nmt_cli.corpus.text.language_codes import distance, fits, spelled
from nmt_cli.files.file_names import AVERAGE, CHECKPOINTS
from nmt_cli.messages.errors import WrongUsageError
from nmt_cli.messages.proposals import any_of
from nmt_cli.recipe.model_settings import UNKNOWN_LANGUAGE, languages_of
from nmt_cli.saved.checkpoints import CHECKPOINT_NAME
from nmt_cli.saved.model_directory import use_model
from nmt_cli.serving.languages import Detected
from nmt_cli.serving.requests import RefusedError
from nmt_cli.translating.encoding.language_tags import for_pair
from nmt_cli.translating.interface.memory import TranslationMemory
from nmt_cli.translating.interface.protection import MOST_SHOWN, NAMED, Protection
from nmt_cli.translating.interface.request import Request as Line
from nmt_cli.translating.segmentation.markup.tokens import LONG_REFERENCE

WITH_LANGUAGES = re.compile(r"(?P<path>.+)=(?P<source>[\w-]+):(?P<target>[\w-]+)")
TAG = re.compile("<[^<>]*>")
COMMON_NAMES = {AVERAGE, CHECKPOINTS, "run"}  # folders of every run
ALWAYS_THERE = {name: name for name in NAMED}  # patterns


class Model(NamedTuple):
    """A model of a service, for one of its pairs of languages; those of all have one name.

    If it has ``steps``, it is a pivot: the second of these models translates the output of the
    first. Then ``path`` and ``beam_size`` are those of the second, and ``name`` names both.
    """

    name: str
    path: Path
    source: str  # codes of languages, such as "en"
    target: str
    beam_size: int
    parses: bool  # it writes trees
    tag: str | None = None  # of the pair
    steps: tuple[Model, ...] = ()
    terms: str = ""  # name of a glossary for the second step

    @property
    def through(self) -> str | None:
        """The pivot language; None if one model translates."""
        return self.steps[0].target if self.steps else None

    def translates(self, source: str, target: str) -> bool:
        """Return whether these are its languages."""
        return fits(source, self.source) and fits(target, self.target)

    def asked(self, line: Line) -> Line:
        """Return ``line`` as a line in its languages."""
        return line._replace(tag=self.tag or "", source_language=self.source)


def models_of(arguments: Sequence[str]) -> list[Model]:
    """Return the models that the arguments of the command name.

    An argument is a path, or PATH=SOURCE:TARGET with the codes of the languages, which are those of
    one of its pairs if it has pairs. Raises UserError if one is no model, does not name its
    languages, or has no such pair.
    """
    models, names = list[Model](), list[str]()
    for argument in arguments:
        found = _models_of(argument)
        names.append(name := found[0].name)
        if (number := names.count(name)) > 1:
            name = f"{name}-{number}"
        models += [each._replace(name=name) for each in found]
    return models


def _models_of(argument: str) -> list[Model]:
    path, languages = _with_languages(argument)
    # What a run means is found, and logged, only here: the process that loads it gets the model.
    found, settings = use_model(path, lambda model: (model.path, model.settings))
    of_each = dict[tuple[str, str], str | None]()  # the tag of each pair
    if not settings.pairs:
        of_each[languages or languages_of(settings.text)] = None
    for pair in settings.pairs:
        of_pair, tag = for_pair(settings, None, *(languages or pair[1:]))
        of_each[languages_of(of_pair.text)] = tag
    models, parses = list[Model](), settings.trees is not None
    for codes, tag in of_each.items():
        source, target = map(spelled, codes)
        if UNKNOWN_LANGUAGE in {source, target}:
            raise WrongUsageError(
                f"{path} does not name its languages; give them with it, such as {path}=en:de."
            )
        beam_size = settings.decoding.beam_size
        models.append(Model(_name(path), found, source, target, beam_size, parses, tag))
    return models


def _with_languages(argument: str) -> tuple[Path, tuple[str, str] | None]:
    path = Path(argument)
    if not path.exists() and (match := WITH_LANGUAGES.fullmatch(argument)):
        return Path(match["path"]), (match["source"], match["target"])
    return path, None


def _name(path: Path) -> str:
    """Return the last part of ``path`` that is not the name of a folder in every run."""
    parts = [
        part
        for part in path.resolve().parts
        if part not in COMMON_NAMES and not CHECKPOINT_NAME.fullmatch(part)
    ]
    return parts[-1]


class ServedGlossary(NamedTuple):
    """A glossary of a service; its name is that of its file."""

    name: str
    source: str
    target: str
    terms: Glossary
    read_at: datetime

    def fits(self, model: Model) -> bool:
        """Return whether it is for the languages of ``model``, or of one of its steps."""
        steps = model.steps or (model,)
        return any(each.translates(self.source, self.target) for each in steps)

    def for_line(self, text: str, markup: str | None) -> Glossary | None:
        """Return the terms that a line needs: no process that translates has the others."""
        is_markup = markup in {"html", "xml"} and not LONG_REFERENCE.search(text)
        if is_markup:  # a term may have tags in it
            text = f"{html.unescape(TAG.sub('', text))}\n{html.unescape(TAG.sub(' ', text))}"
        found = self.terms.found_in(text)
        return Glossary(found) if found else None


def glossaries_of(arguments: Sequence[str], models: Sequence[Model]) -> list[ServedGlossary]:
    """Return the glossaries that the options of the command name.

    An argument is a path, or PATH=SOURCE:TARGET with the codes of the languages; by default they
    are those of the first model. Raises UserError if a file is no glossary, or if no model has its
    languages.
    """
    glossaries: dict[str, ServedGlossary] = {}
    for argument in arguments:
        path, source, target = _for_languages(argument, models)
        now = datetime.now(timezone.utc)
        glossary = ServedGlossary(path.stem, source, target, Glossary.read(path), now)
        if path.stem in glossaries:
            raise WrongUsageError(f"two glossaries have the name {path.stem}; rename a file.")
        glossaries[path.stem] = glossary
    return list(glossaries.values())


def memories_of(
    arguments: Sequence[str], models: Sequence[Model], similar_from: int | None
) -> dict[str, TranslationMemory]:
    """Return the translation memory of each model that has one, by its name.

    The arguments are like those of ``glossaries_of``; ``similar_from`` is as in
    ``TranslationMemory``. Raises UserError if a file cannot be read, or if no model has its
    languages.
    """
    files = [_for_languages(argument, models) for argument in arguments]
    found = dict[str, TranslationMemory]()
    for model in models:
        paths = [path for path, source, target in files if model.translates(source, target)]
        if paths and [each.name for each in models].count(model.name) > 1:
            raise WrongUsageError(
                f"--memory is for models of one pair of languages, but {model.name} has several; "
                f"serve one of them, such as {model.path}={model.source}:{model.target}."
            )
        if paths:
            languages = model.source, model.target
            found[model.name] = TranslationMemory(
                paths, languages=languages, similar_from=similar_from
            )
    return found


def _for_languages(argument: str, models: Sequence[Model]) -> tuple[Path, str, str]:
    path, languages = _with_languages(argument)
    source, target = map(spelled, languages or (models[0].source, models[0].target))
    if not any(model.translates(source, target) for model in models):
        raise WrongUsageError(f"no model translates from {source} to {target}, as {path} does.")
    return path, source, target


class ChosenModel(NamedTuple):
    """The language of a text, and the model for it; None: the text stays as it is."""

    detected: Detected
    model: Model | None


class Models(NamedTuple):
    """All models of a service; the first one that fits a request translates it.

    Where none does, the first pivot that fits.
    """

    models: Sequence[Model]
    pivots: Sequence[Model] = ()

    @property
    def every(self) -> list[Model]:
        """The models, then the pivots."""
        return [*self.models, *self.pivots]

    @property
    def sources(self) -> list[str]:
        """The languages that can be translated from, in the order of the models."""
        return list(dict.fromkeys(model.source for model in self.models))

    @property
    def languages(self) -> list[str]:
        """All languages: those that can be translated from, then the others."""
        return list(dict.fromkeys([*self.sources, *(model.target for model in self.models)]))

    @property
    def pairs(self) -> str:
        """The pairs of languages, as a message shows them."""
        return ", ".join(dict.fromkeys(f"{each.source} to {each.target}" for each in self.models))

    def targets_of(self, source: str) -> list[str]:
        """Return the languages that ``source`` can be translated into."""
        sources = {code for code in self.sources if fits(source, code)}
        return list(dict.fromkeys(m.target for m in self.every if m.source in sources))

    def find(self, source: str | None, target: str | None, name: str | None = None) -> Model:
        """Return the model of this name and languages; what is None is left to the model.

        The target, and then the source, is the nearest: "pt-BR" before "pt" for one of Brazil.
        Raises RefusedError if there is none, or if the languages of several differ.
        """
        asked = source, target, name
        fitting = _fitting(self.models, *asked) or _fitting(self.pivots, *asked)
        wanted = {"model": name, "source": source, "target": target}
        shown = ", ".join(f"{key} {value!r}" for key, value in wanted.items() if value is not None)
        if not fitting:
            missing = [key for key in ("source", "target") if wanted[key] == ""]
            what = f"there is no model with {shown}"
            if missing:
                what = f"the request names no {any_of(missing, 'and')} language"
            raise RefusedError(400, f"{what}; the models are {_listed(self.models)}")
        nearest = min(distances for distances, _ in fitting)
        found = [model for distances, model in fitting if distances == nearest]
        if len({(model.source, model.target) for model in found}) > 1:
            with_what = f"several models have {shown}" if shown else "there are several models"
            raise RefusedError(
                400, f"{with_what}: {_listed(found)}; name the source and the target of one of them"
            )
        return found[0]


def _fitting(
    models: Sequence[Model], source: str | None, target: str | None, name: str | None
) -> list[tuple[list[Any], Model]]:
    """Return the models of this name and languages, each after the distances of its languages."""
    targets = _distances(target, {model.target for model in models})
    sources = _distances(source, {model.source for model in models})
    return [
        ([targets[model.target], sources[model.source]], model)
        for model in models
        if name in {None, model.name} and model.target in targets and model.source in sources
    ]


def _distances(asked: str | None, codes: Iterable[str]) -> dict[str, Any]:
    """Return how far each of ``codes`` that fits is; None fits all alike."""
    found = {code: 0 if asked is None else distance(asked, code) for code in codes}
    return {code: each for code, each in found.items() if each is not None}


def _listed(models: Sequence[Model]) -> str:
    return ", ".join(f"{model.name} ({model.source} to {model.target})" for model in models)


class Patterns(NamedTuple):
    """Patterns of text that a service copies, by the names that requests may give.

    A service takes no patterns from clients, because matching one of them might never end.
    """

    by_name: Mapping[str, str] = ALWAYS_THERE
    given: Sequence[str] = ()  # names of the options' patterns, used where a request names none

    def chosen(self, names: Sequence[str] | None) -> list[str]:
        """Return the patterns with ``names``; None: those given.

        Raises RefusedError if a name is unknown.
        """
        for name in names or ():
            if name not in self.by_name:
                raise RefusedError(
                    400,
                    f"protect: this service has no pattern {name[:MOST_SHOWN]!r}; those it has are "
                    f"{', '.join(self.by_name)}",
                )
        return [
            self.by_name[name] for name in dict.fromkeys(self.given if names is None else names)
        ]


def patterns_of(arguments: Sequence[str]) -> Patterns:
    """Return the patterns that the options of the command give.

    The name of each is that of its group, such as (?P<name>...), or else the pattern. Raises
    UserError if one is wrong.
    """
    by_name, given = {**ALWAYS_THERE}, list[str]()
    for pattern in arguments:
        try:
            Protection([pattern])
        except ValueError as error:
            raise WrongUsageError(f"--protect: {error}.") from None
        name = next(iter(re.compile(pattern).groupindex), pattern)
        if by_name.setdefault(name, pattern) != pattern:
            raise WrongUsageError(f"--protect: two patterns have the name {name}; rename a group.")
        given.append(name)
    return Patterns(by_name, given)
