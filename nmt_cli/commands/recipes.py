"""Shows what recipes are shipped, what one means in full, and whether it can run here."""

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from nmt_cli.errors import RecipeError
from nmt_cli.missing_paths import how_to_write
from nmt_cli.recipe.reader import RecipeFile, dump_recipe, read_recipe, shipped_recipes
from nmt_cli.recipe.schema import Recipe


def list_recipes() -> None:
    """Write each shipped recipe's name and description to stdout."""
    names = shipped_recipes()
    width = max(map(len, names))
    for name in names:
        description = read_recipe(name).recipe.description.strip()
        sys.stdout.write(f"{name:{width}}  {description.splitlines()[0]}\n")


def show(name_or_path: str, overrides: Sequence[str] = ()) -> None:
    """Write the recipe to stdout as YAML, inherited and overridden, with every default."""
    sys.stdout.write(dump_recipe(read_recipe(name_or_path, overrides).recipe))


def check(name_or_path: str, overrides: Sequence[str] = ()) -> None:
    """Say ``recipe ok`` if the recipe is right, its files can be read and its folders written."""
    recipe_file = read_recipe(name_or_path, overrides)
    problems = [*_unreadable(recipe_file.recipe), *_unwritable(recipe_file)]
    if problems:
        raise RecipeError("\n".join(f"{recipe_file.path}: {problem}" for problem in problems))
    sys.stdout.write("recipe ok\n")


def _unreadable(recipe: Recipe) -> Iterator[str]:
    for key, path in _named_files(recipe):
        problem = _problem_of_reading(path)
        if problem:
            yield f"{key}: {path} {problem}"


def _named_files(recipe: Recipe) -> Iterator[tuple[str, Path]]:
    data = recipe.data
    parts = {f"data.train.{index}": corpus for index, corpus in enumerate(data.train)}
    for key, files in {**parts, "data.validation": data.validation, "data.test": data.test}.items():
        if files is not None:
            yield f"{key}.source", files.source
            yield f"{key}.target", files.target
    if recipe.tokenizer.model is not None:
        yield "tokenizer.model", recipe.tokenizer.model


def _problem_of_reading(path: Path) -> str:
    try:
        if path.is_dir():
            return "is a directory; name a file in it"
        with path.open("rb") as stream:
            return "" if stream.read(1) else "is empty"
    except FileNotFoundError:
        hint = how_to_write(path) or "; paths are seen from the folder you are in"
        return f"does not exist{hint}"
    except (OSError, ValueError) as error:
        return f"cannot be read: {getattr(error, 'strerror', None) or error}"


def _unwritable(recipe_file: RecipeFile) -> Iterator[str]:
    runs = Path("runs") / recipe_file.name
    for key, folder in (("preprocess", recipe_file.prepared), ("train", runs)):
        existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        if not existing.is_dir():
            yield f"{key}: would write to {folder}, but {existing} is not a directory"
        elif not os.access(existing, os.W_OK | os.X_OK):
            yield f"{key}: would write to {folder}, but {existing} is not writable"
