"""The text of recipes: read and checked, and written with every default."""

import hashlib
import json
from pathlib import Path

from pydantic import ValidationError

from nmt_cli.files.file_names import RECIPE
from nmt_cli.files.folders import recipes_meant
from nmt_cli.messages.errors import RecipeError
from nmt_cli.messages.proposals import where_missing
from nmt_cli.recipe.reading.problem_messages import findings_of, place_of, shown
from nmt_cli.recipe.reading.yaml_tree import (
    MAX_BYTES,
    Finding,
    YamlTree,
    error_of,
    parse_yaml,
    shortened,
    write_yaml,
)
from nmt_cli.recipe.schema import Recipe

# The recipe.yaml in a run or in one of its models has the run's name, and so has a copy of it.
RESOLVED_FOR = "# The recipe of the run {}, with every default."


def dump_recipe(recipe: Recipe, run: str | None = None) -> str:
    """Return the recipe as YAML with every default; it reads back as the same recipe.

    ``run`` is the name of the run that it is written for. The first line then holds this name, so
    that a copy of the file keeps it.
    """
    head = "" if run is None or not run.isprintable() else f"{RESOLVED_FOR.format(run)}\n"
    return head + write_yaml(recipe.model_dump(mode="json"))


def recipe_hash(recipe: Recipe) -> str:
    """Return a sha256 of all values but those of texts and folders that training never reads."""
    values = recipe.model_dump(mode="json", exclude={"data": {"prepared", "test"}})
    text = json.dumps(values, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def read_text(path: Path, kind: str = "recipe") -> str:
    """Return the text of a YAML file of a ``kind``. Raises RecipeError if it cannot be that."""
    name = shortened(str(path), 1000)
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        meant = recipes_meant(path)
        write = f"; write {meant[0]}" if meant else where_missing(path)
        raise RecipeError(f"{name} does not exist{write}.").proposing(path, meant) from None
    except IsADirectoryError:
        meant = [each for each in [path / RECIPE] if kind == "recipe" and each.is_file()]
        text = f"{name} is a directory; name a {kind} file in it{f', {meant[0]}' if meant else ''}."
        raise RecipeError(text).proposing(path, meant) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RecipeError(f"{name} cannot be read: {reason}.") from None
    if len(content) > MAX_BYTES:
        raise RecipeError(f"{name} is larger than {MAX_BYTES:,} bytes; it is not a {kind} file.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise RecipeError(
            f"{name}:{line}: not UTF-8 text (byte 0x{content[error.start]:02x}); save it as UTF-8."
        ) from None


def checked_tree(text: str, path: Path) -> YamlTree:
    """Return the values in ``text``, that of ``path``. Raises RecipeError if it is no recipe."""
    tree = parse_yaml(text, shortened(str(path), 1000))
    if tree.readable and not isinstance(tree.value, dict):
        sections = ", ".join(Recipe.model_fields)
        found = "empty" if tree.value is None else shown(tree.value)
        text = f"a recipe has the keys {sections}, but this is {found}"
        tree = YamlTree(None, {}, [Finding(place_of((), tree.places), "", text)], readable=False)
    if not tree.readable:
        raise error_of(tree.findings)
    return tree


def validated(tree: YamlTree) -> Recipe:
    """Return the recipe with these values. Raises RecipeError, which lists all problems."""
    try:
        recipe = Recipe.model_validate(tree.value)
    except ValidationError as error:
        raise error_of([*tree.findings, *findings_of(error, tree.places)]) from None
    if tree.findings:
        raise error_of(tree.findings)
    return recipe
