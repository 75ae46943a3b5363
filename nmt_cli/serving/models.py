"""The models that a service has: their names, their languages, and which one a request means."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from nmt_cli.checkpoints import CHECKPOINT_NAME, find_model
from nmt_cli.files.atomic_files import read_manifest
from nmt_cli.files.file_names import AVERAGE, CHECKPOINTS
from nmt_cli.messages.errors import UserError, WrongUsageError
from nmt_cli.recipe.model_settings import read_settings

LANGUAGES = re.compile(r"(?P<path>.+)=(?P<source>[\w]+(?:-\w+)?):(?P<target>[\w]+(?:-\w+)?)")
UNKNOWN_LANGUAGE = "und"
UNTOLD_NAMES = {AVERAGE, CHECKPOINTS, "run"}  # folders that do not name the model in them


class Model(NamedTuple):
    """A model of a service."""

    name: str
    path: Path
    source: str  # codes of languages, such as "en"
    target: str
    beam_size: int
    parses: bool  # it writes trees


def models_of(arguments: Sequence[str]) -> list[Model]:
    """Return the models that the arguments of the command name.

    An argument is a path, or PATH=SOURCE:TARGET with the codes of the languages. Raises UserError
    if one is no model, or does not name its languages.
    """
    models, names = list[Model](), list[str]()
    for argument in arguments:
        model = _model_of(argument)
        names.append(model.name)
        number = names.count(model.name)
        models.append(model._replace(name=f"{model.name}-{number}") if number > 1 else model)
    return models


def _model_of(argument: str) -> Model:
    path, languages = Path(argument), None
    if not path.exists() and (match := LANGUAGES.fullmatch(argument)):
        path, languages = Path(match["path"]), (match["source"], match["target"])
    folder = find_model(path)
    settings = read_settings(folder, read_manifest(folder))
    source, target = languages or (settings.text.source_language, settings.text.target_language)
    if UNKNOWN_LANGUAGE in {source, target}:
        raise WrongUsageError(
            f"{path} does not name its languages; give them with it, such as {path}=en:de."
        )
    parses = settings.trees is not None
    return Model(_name(path), path, source, target, settings.decoding.beam_size, parses)


def _name(path: Path) -> str:
    """Return the last part of ``path`` that tells models apart."""
    parts = [
        part
        for part in path.resolve().parts
        if part not in UNTOLD_NAMES and not CHECKPOINT_NAME.fullmatch(part)
    ]
    return parts[-1]


class UnknownModelError(UserError):
    """There is no model for what a request asks for."""


class Models(NamedTuple):
    """All models of a service; the first one that fits a request translates it."""

    models: Sequence[Model]

    @property
    def sources(self) -> list[str]:
        """The languages that can be translated from, in the order of the models."""
        return list(dict.fromkeys(model.source for model in self.models))

    def targets_of(self, source: str) -> list[str]:
        """Return the languages that ``source`` can be translated into."""
        return list(dict.fromkeys(m.target for m in self.models if m.source == source))

    def find(self, source: str | None, target: str | None, name: str | None = None) -> Model:
        """Return the model of this name and languages; what is None is left to the model.

        Raises UnknownModelError if there is none, or if the languages of several differ.
        """
        fitting = [
            model
            for model in self.models
            if name in {None, model.name}
            and source in {None, model.source}
            and target in {None, model.target}
        ]
        asked = {"model": name, "source": source, "target": target}
        shown = ", ".join(f"{key} {value!r}" for key, value in asked.items() if value is not None)
        if not fitting:
            pairs = ", ".join(f"{m.name} ({m.source} to {m.target})" for m in self.models)
            raise UnknownModelError(f"there is no model with {shown}; the models are {pairs}")
        if len({(model.source, model.target) for model in fitting}) > 1:
            with_what = f"several models have {shown}" if shown else "there are several models"
            raise UnknownModelError(f"{with_what}; name the source and the target language")
        return fitting[0]
