"""``model.from``: a recipe that takes architecture, tokenizer and normalization from a model.

The resolved recipe holds all of them, so that a run goes on when the model was removed.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from nmt_cli.files.file_names import CONFIG, RECIPE, RUNS
from nmt_cli.files.folders import is_model, what_to_give
from nmt_cli.messages.errors import RecipeError, UserError
from nmt_cli.recipe.keys import effect_of
from nmt_cli.recipe.model_settings import ModelSettings, read_settings
from nmt_cli.recipe.model_values import Architecture
from nmt_cli.recipe.reading.problem_messages import dotted, place_of, shown
from nmt_cli.recipe.reading.yaml_tree import Finding, KeyPath, Place, YamlTree, error_of, shortened
from nmt_cli.recipe.schema import Recipe
from nmt_cli.recipe.sections.tokenizer import TokenizerConfig
from nmt_cli.recipe.values import TEXT

FROM: KeyPath = ("model", "from")
TREEBANK: KeyPath = ("data", "treebank")


class Adopted(NamedTuple):
    """A tree with what the model decides, and the keys of it that the recipe gives as well."""

    tree: YamlTree
    decided: Mapping[KeyPath, Any]  # JSON values
    also_given: list[KeyPath]

    def refuse_contradictions(self, recipe: Recipe) -> None:
        """Raise RecipeError if ``recipe`` has another value than the model for one of the keys."""
        values = recipe.model_dump(mode="json")
        findings = []
        for path in self.also_given:
            given, decided = _at(values, path), self.decided[path]
            if given != decided:
                text = f"must be {shown(decided)} or left out beside model.from, but is "
                place = place_of(path, self.tree.places)
                findings.append(Finding(place, dotted(path), text + shown(given)))
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


def adopt_model(tree: YamlTree) -> Adopted:
    """Return ``tree`` with all keys that the model of ``model.from`` decides, if it has that key.

    A resolved recipe has all of these keys already; its model is not read and may be missing.
    Raises RecipeError if there is no model.
    """
    folder = _at(tree.value, FROM)
    if not isinstance(folder, str) or not folder or _is_resolved(tree.value):
        return Adopted(tree, {}, [])
    try:
        settings = _read_settings(Path(folder))
        if settings.trees is not None and _at(tree.value, TREEBANK) is None:
            raise RecipeError(
                f"{folder} is a parser, and parsers are trained on trees; give "
                f"{dotted(TREEBANK)}, or name another model"
            )
    except RecipeError as error:
        finding = Finding(place_of(FROM, tree.places), dotted(FROM), str(error))
        raise error_of([*tree.findings, finding]) from None
    decided = _decided_by(Path(folder), settings)
    place = Place(shortened(str(Path(folder) / CONFIG), 1000), None)
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
                places[path] = place
    return Adopted(tree._replace(value=value, places=places), decided, also_given)


def _is_resolved(value: Any) -> bool:
    has_tokenizer = _at(value, ("tokenizer", "model")) is not None
    return has_tokenizer and set(value["model"]) >= set(vars(Architecture()))


def _read_settings(folder: Path) -> ModelSettings:
    """Return the settings of the model in ``folder``. Raises RecipeError if it has none."""
    try:
        if is_model(folder):
            return read_settings(folder)
        problem = what_to_give(folder, "model directory")
    except UserError as error:  # the model is damaged, or has a format that is not read
        problem = f"{str(error).rstrip('.')}; name another model"
    if not folder.exists():
        own = f"{RUNS}/NAME/{RECIPE}"
        problem = (
            f"{problem.rstrip('.')} (a run that began from it goes on with its own recipe, {own})"
        )
    raise RecipeError(problem.rstrip("."))


def _decided_by(folder: Path, settings: ModelSettings) -> dict[KeyPath, Any]:
    """Return the keys of a recipe that the model in ``folder`` decides, with JSON values."""
    text = settings.text
    tokenizer = TokenizerConfig.model_construct(type=text.type, joiner=text.joiner, model=folder)
    sections: dict[KeyPath, dict[str, Any]] = {
        ("model",): vars(settings.architecture),
        ("tokenizer",): tokenizer.model_dump(mode="json"),
        ("data", "normalization"): vars(text.normalization),
    }
    return {
        (*path, name): value
        for path, section in sections.items()
        for name, value in section.items()
        if path != ("tokenizer",) or effect_of(f"tokenizer.{name}") & TEXT
    }


def _at(value: Any, path: KeyPath) -> Any:
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value
