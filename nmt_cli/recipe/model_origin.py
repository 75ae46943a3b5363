"""``model.from``: a recipe that takes architecture, tokenizer and normalization from a model.

The resolved recipe holds all of them, so that a run goes on when the model was removed.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from nmt_cli.files.file_names import AVERAGE, CONFIG, RECIPE, RUNS, WEIGHTS
from nmt_cli.messages.errors import RecipeError, UserError
from nmt_cli.messages.proposals import missing_hint
from nmt_cli.recipe.messages import dotted, place_of, shown
from nmt_cli.recipe.model_config import ModelConfig
from nmt_cli.recipe.schema import ONLY_FOR_TRAINING, Recipe, TokenizerConfig
from nmt_cli.recipe.yaml_tree import Finding, KeyPath, Place, Tree, error_of, shortened

FROM: KeyPath = ("model", "from")
TREEBANK: KeyPath = ("data", "treebank")
LARGEST_CONFIG = 1_000_000  # bytes
DROPOUTS = {"dropout", "attention_dropout", "relu_dropout"}  # not in a model directory
ARCHITECTURE = [name for name in ModelConfig.model_fields if name not in DROPOUTS]


class Adopted(NamedTuple):
    """A tree with what the model decides, and the keys of it that the recipe gives as well."""

    tree: Tree
    decided: Mapping[KeyPath, Any]  # JSON values
    also_given: list[KeyPath]

    def refuse_contradictions(self, recipe: Recipe) -> None:
        """Raise RecipeError if ``recipe`` has another value than the model for one of the keys."""
        values = recipe.model_dump(mode="json")
        findings = []
        for path in self.also_given:
            given, decided = _at(values, path), self.decided[path]
            if given != decided:
                text = f"must be {_written(decided)} or left out beside model.from, but is "
                place = place_of(path, self.tree.places)
                findings.append(Finding(place, dotted(path), text + _written(given)))
        if findings:
            raise error_of(findings)


def first_model(recipe: Recipe, init_from: Path | None) -> Path | None:
    """Return the model whose weights are the first ones: ``init_from``, or the recipe's.

    None stands for random weights. Raises UserError if both are given.
    """
    if init_from is not None and recipe.origin is not None:
        raise UserError(
            f"the recipe starts from model.from {recipe.origin}, so that --init-from {init_from} "
            "cannot be used; leave one of them out."
        )
    return init_from or recipe.origin


def adopt_model(tree: Tree, read_resolved: Callable[[Path], Recipe]) -> Adopted:
    """Return ``tree`` with all keys that the model of ``model.from`` decides, if it has that key.

    A resolved recipe has all of these keys already; its model is not read and may be missing.
    ``read_resolved`` reads the recipe of a model of format 1, which has its settings.
    Raises RecipeError if there is no model.
    """
    folder = _at(tree.value, FROM)
    if not isinstance(folder, str) or not folder or _is_resolved(tree.value):
        return Adopted(tree, {}, [])
    try:
        has_trees = _at(tree.value, TREEBANK) is not None
        described_by, content = RECIPE, _settings_of_format_1(Path(folder), read_resolved)
        if content is None:
            described_by, content = CONFIG, _read_config(Path(folder))
        decided = _decided_by(Path(folder), content, has_trees=has_trees)
    except _NoModelError as error:
        finding = Finding(place_of(FROM, tree.places), dotted(FROM), str(error))
        raise error_of([*tree.findings, finding]) from None
    value, places = {**tree.value}, {**tree.places}
    also_given = []
    for path, theirs in decided.items():
        section = value
        for step in path[:-1]:
            inner = section.get(step)
            if inner is not None and not isinstance(inner, dict):
                break  # the wrong section is reported when the recipe is validated
            section[step] = {**(inner or {})}
            section = section[step]
        else:
            if section.get(path[-1]) is not None:
                also_given.append(path)
            else:
                section[path[-1]] = theirs
                places[path] = Place(shortened(str(Path(folder) / described_by), 1000), None)
    return Adopted(tree._replace(value=value, places=places), decided, also_given)


class _NoModelError(Exception):
    """The folder holds no model that can be read, or none for this recipe."""


def _is_resolved(value: Any) -> bool:
    has_tokenizer = _at(value, ("tokenizer", "model")) is not None
    return has_tokenizer and set(ARCHITECTURE) <= set(value["model"])


def _settings_of_format_1(folder: Path, read_resolved: Callable[[Path], Recipe]) -> Any:
    """Return what ``config.json`` would hold of a model of format 1; None if it is not one.

    Raises _NoModelError if its recipe cannot be read.
    """
    files = [(folder / name).is_file() for name in (WEIGHTS, RECIPE, CONFIG)]
    if files != [True, True, False]:
        return None
    try:
        recipe = read_resolved(folder / RECIPE)
    except RecipeError as error:
        problem = str(error).splitlines()[0].rstrip(".")
        raise _NoModelError(f"{folder} is damaged: {problem}; name another model") from None
    data, treebank = recipe.data, recipe.data.treebank
    return {
        "text": {
            "tokenizer": recipe.tokenizer.type,
            "joiner": recipe.tokenizer.joiner,
            "normalization": data.normalization.model_dump(mode="json"),
        },
        "architecture": recipe.model.model_dump(mode="json", include=set(ARCHITECTURE)),
        "trees": treebank and treebank.model_dump(mode="json"),
    }


def _decided_by(folder: Path, content: Any, *, has_trees: bool) -> dict[KeyPath, Any]:
    """Return the keys of a recipe that the model in ``folder`` decides, with JSON values.

    ``content`` are its settings. Raises _NoModelError for a model that parses, unless the recipe
    ``has_trees`` to train on.
    """
    try:
        text, theirs = content["text"], dict(content["architecture"])
        tokenizer = {"type": text["tokenizer"], "joiner": text["joiner"], "model": str(folder)}
        normalization = dict(text["normalization"])
    except (KeyError, TypeError, ValueError):
        raise _NoModelError(
            f"{folder / CONFIG} is not that of our models; name one, or import this one before"
        ) from None
    if content.get("trees") is not None and not has_trees:
        raise _NoModelError(
            f"{folder} is a parser, and parsers are trained on trees; give {dotted(TREEBANK)}, or "
            "name another model"
        )
    theirs.pop("vocabulary_size", None)
    architecture = {**_defaults(ModelConfig, ARCHITECTURE), **theirs}
    names = [name for name in TokenizerConfig.model_fields if name not in ONLY_FOR_TRAINING]
    return {
        **{("model", name): value for name, value in architecture.items()},
        **{
            ("tokenizer", name): value
            for name, value in {**_defaults(TokenizerConfig, names), **tokenizer}.items()
        },
        **{("data", "normalization", name): value for name, value in normalization.items()},
    }


def _defaults(section: Any, names: list[str]) -> dict[str, Any]:
    values = {name: section.model_fields[name].default for name in names}
    return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}


def _read_config(folder: Path) -> Any:
    path = folder / CONFIG
    try:
        with path.open("rb") as stream:
            data = stream.read(LARGEST_CONFIG + 1)
        if len(data) > LARGEST_CONFIG:
            raise ValueError
        return json.loads(data)
    except (ValueError, RecursionError):
        raise _NoModelError(f"{path} is damaged; name another model") from None
    except OSError as error:
        if not folder.exists():
            remedy = missing_hint(folder) or (
                "; name a model directory. A run that began from it goes on with its own recipe, "
                f"{RUNS}/NAME/recipe.yaml"
            )
            raise _NoModelError(f"{folder} does not exist{remedy}") from None
        if (folder / AVERAGE / WEIGHTS).exists():
            text = f"{folder} is a run; name a model in it, such as {folder / AVERAGE}"
        elif isinstance(error, FileNotFoundError | NotADirectoryError):
            text = (
                f"{folder} is no model directory, as it has no {CONFIG}; name one, or import this "
                "one before"
            )
        else:
            text = f"{path} cannot be read: {error.strerror}"
        raise _NoModelError(text) from None


def _at(value: Any, path: KeyPath) -> Any:
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _written(value: Any) -> str:
    return shown(str(value).lower() if isinstance(value, bool) else value)
