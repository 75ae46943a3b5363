"""``nmt-cli recipes``: lists the shipped recipes, and shows, explains and checks recipes."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from nmt_cli.commands.checking.first_lines import (
    compared_sides,
    on_languages,
    why_too_many_pieces,
    wrong_texts,
)
from nmt_cli.commands.checking.sample_warnings import warn_of_samples
from nmt_cli.commands.inspecting.subject import find_subject
from nmt_cli.costs.flops import planned_training
from nmt_cli.costs.this_machine import forecast
from nmt_cli.files.file_names import RUNS
from nmt_cli.messages import logs
from nmt_cli.messages.errors import RecipeError, UserError
from nmt_cli.messages.proposals import any_of, where_missing
from nmt_cli.recipe.documentation import described_keys, limits_of, recipe_schema, with_comments
from nmt_cli.recipe.keys import keys_meant
from nmt_cli.recipe.reading.problem_messages import shown
from nmt_cli.recipe.reading.reader import RecipeFile, read_recipe
from nmt_cli.recipe.reading.recipe_files import dump_recipe
from nmt_cli.recipe.reading.shipped import shipped_recipes
from nmt_cli.recipe.schema import Recipe, for_new_text
from nmt_cli.saved.checkpoints import warn_of_few_checkpoints


def list_recipes() -> None:
    """Write each shipped recipe's name and description to stdout."""
    names = shipped_recipes()
    width = max(map(len, names))
    for name in names:
        description = read_recipe(name).recipe.description.strip()
        sys.stdout.write(f"{name:{width}}  {description.splitlines()[0]}\n")


def show(name_or_path: str, overrides: Sequence[str] = (), *, comments: bool = False) -> None:
    """Write the recipe to stdout as YAML, with its parent, overrides and every default.

    Raises RecipeError if the recipe is wrong.
    """
    recipe = read_recipe(name_or_path, overrides).recipe
    sys.stdout.write(with_comments(recipe) if comments else dump_recipe(recipe))


def list_keys(section: str | None = None) -> None:
    """Write meaning, allowed values and default of each key, or only of the keys in ``section``.

    Raises RecipeError if there is no such section or key.
    """
    chosen = [
        key
        for key in described_keys()
        if section is None or f"{key.name}.".startswith(f"{section}.")
    ]
    if not chosen:
        meant = keys_meant(section or "") or list(Recipe.model_fields)
        raise RecipeError(
            f"{shown(section)} is not a section or key of a recipe; did you mean {any_of(meant)}?"
        )
    for key in chosen:
        sys.stdout.write(f"{key.name}: {key.description}\n    {limits_of(key)}\n")


def write_schema() -> None:
    """Write the JSON Schema of recipes to stdout."""
    sys.stdout.write(json.dumps(recipe_schema(), indent=2, ensure_ascii=False) + "\n")


def check(name_or_path: str, overrides: Sequence[str] = (), *, text: bool = False) -> None:
    """Write ``recipe ok`` if the recipe is valid, its files can be read and its folders written.

    Otherwise raises RecipeError, which lists all problems. With ``text``, files are read whole, and
    what a sample of them shows is logged.
    """
    recipe_file = read_recipe(name_or_path, overrides)
    data = recipe_file.recipe.data
    problems, warnings = [*_unreadable(recipe_file), *_unwritable(recipe_file)], list[str]()
    problems += [f"data.{key}: {problem}" for key, problem in wrong_texts(data)]
    if not problems and (problem := why_too_many_pieces(for_new_text(recipe_file.recipe))):
        problems = [problem]
    if text and not problems and data.treebank is None:
        found, warnings = compared_sides(data)
        problems = [f"data.{key}: {problem}" for key, problem in found]
    if problems:
        raise RecipeError("\n".join(f"{recipe_file.path}: {problem}" for problem in problems))
    for warning in (*on_languages(data), *warnings):
        logs.warning(warning)
    warn_of_few_checkpoints(recipe_file)
    if text and data.treebank is None:
        warn_of_samples(recipe_file.recipe)
    _forecast(name_or_path, overrides)
    sys.stdout.write("recipe ok\n")
    if not text:
        logs.info("What the texts hold was not checked: add --text.")


def _forecast(name_or_path: str, overrides: Sequence[str]) -> None:
    """Log how much the training computes, if the size of the vocabulary is known by now."""
    with suppress(UserError):
        model = find_subject(name_or_path, overrides, None, None)
        assert model.training is not None  # that of a recipe is known
        of_model = model.architecture, model.vocabulary_size
        if (work := planned_training(*of_model, model.training, model.lengths)) is not None:
            logs.info(forecast(work))


def _unreadable(recipe_file: RecipeFile) -> Iterator[str]:
    keys_of = dict[str, list[str]]()  # of each problem: several keys may name the same file
    for key, path in _named_files(recipe_file.recipe):
        problem = _problem_of_reading(path)
        if problem:
            text = f"{path} {problem}{recipe_file.why_missing(key, path)}"
            keys_of.setdefault(text, []).append(key)
    for text, keys in keys_of.items():
        yield f"{', '.join(keys)}: {text}"


def _named_files(recipe: Recipe) -> Iterator[tuple[str, Path]]:
    data = recipe.data
    for name, files in data.corpora.items():
        yield from ((f"data.{name}.{key}", path) for key, path in files.paths.items())
    for index, corpus in enumerate(data.train):
        key = f"data.train.{index}"
        if corpus.scores is not None:
            yield f"{key}.scores.file", corpus.scores.file
        if corpus.alignments is not None:
            yield f"{key}.alignments", corpus.alignments
        if corpus.augment.glossary is not None:
            yield f"{key}.augment.glossary", corpus.augment.glossary
    if recipe.tokenizer.model is not None and recipe.origin is None:
        yield "tokenizer.model", recipe.tokenizer.model


def _problem_of_reading(path: Path) -> str:
    try:
        if path.is_dir():
            return "is a directory; name a file in it"
        with path.open("rb") as stream:
            return "" if stream.read(1) else "is empty"
    except FileNotFoundError:
        hint = where_missing(path)
        return f"does not exist{hint}"
    except (OSError, ValueError) as error:
        return f"cannot be read: {getattr(error, 'strerror', None) or error}"


def _unwritable(recipe_file: RecipeFile) -> Iterator[str]:
    for key, folder, option in (
        ("preprocess", recipe_file.prepared, "--prepared"),
        ("train", Path(RUNS) / recipe_file.name, "--run-dir"),
    ):
        existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        problem = ""
        if not existing.is_dir():
            problem = "is not a directory"
        elif not os.access(existing, os.W_OK | os.X_OK):
            problem = "is not writable"
        if problem:
            yield (
                f"{key}: would write to {folder}, but {existing} {problem}; give {key} another "
                f"{option}"
            )
