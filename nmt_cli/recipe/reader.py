"""Reads recipes by name or path, applies ``extends`` and ``--set``, and checks the result."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from nmt_cli.files.file_names import AVERAGE, CHECKPOINTS, MANIFEST, RECIPE, SESSIONS
from nmt_cli.messages.errors import RecipeError
from nmt_cli.messages.proposals import missing_hint
from nmt_cli.recipe.changes import keys_of_text
from nmt_cli.recipe.layers import merge, parse_overrides
from nmt_cli.recipe.messages import dotted, shown
from nmt_cli.recipe.model_origin import adopt_model
from nmt_cli.recipe.recipe_files import RESOLVED_FOR, checked_tree, read_text, validated
from nmt_cli.recipe.schema import Recipe
from nmt_cli.recipe.shipped import is_near_shipped, meant_by, shipped_file, shipped_name
from nmt_cli.recipe.yaml_tree import Finding, Tree, error_of

SUFFIXES = (".yaml", ".yml")
MAX_ANCESTORS = 20
WRITTEN_BESIDE = (SESSIONS, MANIFEST)
FOLDER_OF_A_RUN = re.compile(rf"{AVERAGE}|{CHECKPOINTS}|step-\d+")


class RecipeFile(NamedTuple):
    """A recipe that was read, with its name and the folder that the name decides."""

    name: str
    path: Path
    recipe: Recipe
    prepared: Path  # the folder that preprocess writes and train reads by default
    inherited: Mapping[str, str]  # the names of keys, each with the recipe that it comes from

    def why_missing(self, key: str, file: Path) -> str:
        """Return where an inherited ``key`` comes from and what to do about its missing ``file``.

        Returns an empty text if it is not inherited, if the file is there, or a command writes it.
        """
        recipe = self.inherited.get(key)
        if recipe is None or file.exists() or missing_hint(file):
            return ""
        section = ".".join(key.split(".")[:2])
        drop = f", or write data: {{{section[5:]}: null}}" if section == "data.test" else ""
        return f"; {section} comes from the recipe {recipe}: give your own{drop}"


class _Layer(NamedTuple):
    """One file of the chain of ``extends``; ``tree`` is without that key."""

    path: Path
    tree: Tree
    name: str


def read_recipe(name_or_path: str, overrides: Sequence[str] = ()) -> RecipeFile:
    """Return the recipe after inheritance and ``--set``.

    Raises RecipeError, which lists all problems, if a file cannot be read or the recipe is wrong.
    """
    layers = _read_layers(name_or_path)
    resolved = [layers[-1].tree]  # from the furthest ancestor to the recipe itself
    for layer in reversed(layers[:-1]):
        resolved.append(merge(resolved[-1], layer.tree))
    final = merge(resolved[-1], parse_overrides(overrides, resolved[-1].value))
    adopted = adopt_model(final)
    recipe = validated(adopted.tree)
    adopted.refuse_contradictions(recipe)
    names = [layer.name for layer in layers]
    folder = recipe.data.prepared
    if folder is None:
        folder = Path("prepared") / _owner_of_prepared(names, [*reversed(resolved)], recipe)
    names_of_files = {str(layer.path): layer.name for layer in layers[1:]}
    inherited = {
        dotted(path): names_of_files[place.file]
        for path, place in final.places.items()
        if place.file in names_of_files
    }
    return RecipeFile(names[0], layers[0].path, recipe, folder, inherited)


def _read_layers(name_or_path: str) -> list[_Layer]:
    path = _path_of(name_or_path, Path())
    layers = [_layer(path, read_text(path))]
    while "extends" in layers[-1].tree.value:
        tree = layers[-1].tree
        try:
            parent = _parent_path(tree.value.pop("extends"), layers)
            text = read_text(parent)
        except RecipeError as error:
            finding = Finding(tree.places[("extends",)], "extends", str(error))
            found = [finding for layer in layers for finding in layer.tree.findings]
            raise error_of([*found, finding]) from None
        layers.append(_layer(parent, text))
    return layers


def _parent_path(parent: object, layers: list[_Layer]) -> Path:
    """Return the file that ``extends: parent`` names in the last of ``layers``."""
    if not isinstance(parent, str) or not parent.isprintable():
        raise RecipeError(f"must name one recipe, but is {shown(parent)}")
    if len(layers) > MAX_ANCESTORS:
        raise RecipeError(f"more than {MAX_ANCESTORS} recipes extend one another")
    path = _path_of(parent, layers[-1].path.parent)
    if any(path.resolve() == layer.path.resolve() for layer in layers):
        raise RecipeError(f"{path} is its own ancestor; remove one extends of the circle")
    return path


def _layer(path: Path, text: str) -> _Layer:
    return _Layer(path, checked_tree(text, path), _name_of(path, text))


def _name_of(path: Path, text: str) -> str:
    """Return the name of the recipe: that of the run for a run's recipe.yaml, else the file's."""
    if path.name != RECIPE:
        return shipped_name(path) or path.stem
    before, after = RESOLVED_FOR.split("{}")
    first_line = text.partition("\n")[0].rstrip()
    if first_line.startswith(before) and first_line.endswith(after):
        run = first_line[len(before) : -len(after)]
        if _is_below(run):
            return run
    folder = path.absolute().parent
    if not any((folder / name).is_file() for name in WRITTEN_BESIDE):
        return path.stem
    while FOLDER_OF_A_RUN.fullmatch(folder.name):
        folder = folder.parent
    return folder.name or path.stem


def _is_below(run: str) -> bool:
    """Return whether ``run`` is a name, perhaps with folders, and no path to another place."""
    path = Path(run)
    is_inside = not path.is_absolute() and ".." not in path.parts
    return is_inside and path.as_posix() == run != "."


def _path_of(name_or_path: str, folder: Path) -> Path:
    """Return the file that a name or a path (seen from ``folder``) means."""
    path = folder / name_or_path
    if name_or_path.endswith(SUFFIXES):
        return path
    shipped = shipped_file(name_or_path)
    if shipped is not None:
        return shipped
    if "/" in name_or_path and (not is_near_shipped(name_or_path) or path.exists()):
        return path
    if any((folder / f"{name_or_path}{suffix}").is_file() for suffix in SUFFIXES):
        raise RecipeError(
            f"{shown(name_or_path)} is not a shipped recipe; "
            f"for the file beside it write {name_or_path}.yaml."
        )
    raise RecipeError(meant_by(name_or_path))


def _owner_of_prepared(names: list[str], resolved: list[Tree], recipe: Recipe) -> str:
    """Return the furthest ancestor whose text is prepared in the same way as the recipe's."""
    owner, wanted = names[0], keys_of_text(recipe)
    for name, tree in zip(names[1:], resolved[1:], strict=True):
        try:
            ancestor = validated(adopt_model(tree).tree)
        except RecipeError:
            break  # it is no recipe without its child
        if keys_of_text(ancestor) != wanted:
            break
        owner = name
    return owner
