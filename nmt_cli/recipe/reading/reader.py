"""Reads recipes by name or path, applies ``extends`` and ``--set``, and checks the result."""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nmt_cli.files.file_names import (
    AVERAGE,
    CHECKPOINTS,
    MANIFEST,
    RECIPE,
    RECIPE_SUFFIXES,
    SESSIONS,
)
from nmt_cli.files.folders import recipes_meant
from nmt_cli.messages.errors import RecipeError
from nmt_cli.messages.figures import counted
from nmt_cli.messages.proposals import missing_hint
from nmt_cli.recipe.keys import keys_meant, keys_of_text, section_at
from nmt_cli.recipe.reading.model_origin import adopt_model
from nmt_cli.recipe.reading.problem_messages import dotted, shown
from nmt_cli.recipe.reading.recipe_files import RESOLVED_FOR, checked_tree, read_text, validated
from nmt_cli.recipe.reading.shipped import is_near_shipped, meant_by, shipped_file, shipped_name
from nmt_cli.recipe.reading.yaml_tree import (
    Finding,
    KeyPath,
    Place,
    YamlTree,
    error_of,
    parse_yaml,
    scalar,
)
from nmt_cli.recipe.schema import Recipe

ON_COMMAND_LINE = Place("--set", None)
WRITTEN_AS_YAML = re.compile(r"([\w.-]+)(?:\s*:\s*|\s+)(\S.*)", re.DOTALL)


def merge(parent: YamlTree, child: YamlTree) -> YamlTree:
    """Return the parent with the values of the child; a list is replaced as a whole."""
    replaced: dict[KeyPath, Any] = {}  # the parent's values that the child replaces
    value = _merge_values(parent.value, child.value, (), replaced)
    hidden = [  # wrong values of the parent that are no longer in the merged recipe
        Finding(parent.places[path], dotted(path), f"must be a section, but is {shown(what)}")
        for path, what in replaced.items()
        if isinstance(what, str) and section_at(path)
    ]
    inherited = {
        path: place
        for path, place in parent.places.items()
        if not any(path[:length] in replaced for length in range(1, len(path) + 1))
    }
    return YamlTree(
        value, {**inherited, **child.places}, [*parent.findings, *hidden, *child.findings]
    )


def parse_overrides(overrides: Sequence[str], below: Any = None) -> YamlTree:
    """Return ``overrides``, each ``section.key=value``, as a tree like that of a recipe file.

    ``below`` is the value of the recipe that they change. Where it holds a list, a number in a key
    is the index of an entry; the result then holds a dictionary with integer keys, such as
    ``{0: ...}``, which a YAML file cannot give.
    """
    tree = YamlTree({}, {}, [])
    for override in overrides:
        key, equals, text = override.partition("=")
        key = key.strip()
        problem = _problem_of_override(key, bool(equals), text)
        if problem:
            tree.findings.append(Finding(ON_COMMAND_LINE, key or "''", problem))
            continue
        try:
            path = _path_in(below, key)
        except RecipeError as error:
            tree.findings.append(Finding(ON_COMMAND_LINE, key, str(error)))
            continue
        parsed = parse_value(text.strip())
        tree.findings.extend(Finding(ON_COMMAND_LINE, key, found.text) for found in parsed.findings)
        if parsed.readable:
            _put(tree, path, parsed)
    return tree


def _path_in(value: Any, key: str) -> KeyPath:
    """Return the path of ``key`` in ``value``; indices of list entries become integers.

    Raises RecipeError if a list has no such entry.
    """
    path: list[str | int] = []
    for text in key.split("."):
        step: str | int = text
        if isinstance(value, list):
            if not (text.isascii() and text.isdigit() and int(text) < len(value)):
                name, entries = dotted(tuple(path)), counted(len(value), "entry", "entries")
                raise RecipeError(
                    f"{name} has {entries}, numbered from 0, so there is no entry {text}; "
                    f"give another number, or the whole list as --set '{name}=[...]'"
                )
            step = int(text)
            value = value[step]
        else:
            value = value.get(text) if isinstance(value, dict) else None
        path.append(step)
    return tuple(path)


def _merge_values(parent: Any, child: Any, path: KeyPath, replaced: dict[KeyPath, Any]) -> Any:
    if isinstance(parent, list) and isinstance(child, dict) and _are_entries(child):
        return [
            _merge_values(entry, child[index], (*path, index), replaced)
            if index in child
            else entry
            for index, entry in enumerate(parent)
        ]
    if not isinstance(parent, dict) or not isinstance(child, dict):
        replaced[path] = parent
        return child
    merged = dict(parent)
    for dropped in _dropped_alternatives(parent, child, path):
        place = (*path, dropped)
        replaced[place] = merged.pop(dropped)
    for key, value in child.items():
        below = (*path, key)
        merged[key] = _merge_values(parent[key], value, below, replaced) if key in parent else value
    return merged


def _are_entries(child: dict[Any, Any]) -> bool:
    """Return whether ``child`` gives entries of a list by index, which only --set can do."""
    return bool(child) and all(isinstance(place, int) for place in child)


def _dropped_alternatives(
    parent: dict[str, Any], child: dict[str, Any], path: KeyPath
) -> list[str]:
    """Return the parent's keys for which the child sets an alternative (epochs for steps)."""
    section = section_at(path)
    if section is None:
        return []
    dropped = (
        key
        for group in section.alternatives
        if any(child.get(key) is not None for key in group)
        for key in sorted(group)
        if key in parent and key not in child
    )
    return list(dict.fromkeys(dropped))


def _problem_of_override(key: str, has_value: bool, text: str) -> str:
    if key == "extends":
        return "only a file can name its parent"
    if not key or not all(step.strip() for step in key.split(".")):
        return "is not a key; write --set section.key=value"
    if not has_value:
        return _correction_without_value(key)
    if any("\ud800" <= character <= "\udfff" for character in key + text):
        return "is not UTF-8 text"
    return ""


def _correction_without_value(text: str) -> str:
    """Return a message with the correct form of ``key``, ``key: value`` or ``key value``."""
    match = WRITTEN_AS_YAML.fullmatch(text)
    if match is None:
        return f"has no value; write --set {_key_meant(text)}=value"
    key, value = match.groups()
    return f"has no =; write --set {shlex.quote(f'{_key_meant(key)}={value}')}"


def _key_meant(text: str) -> str:
    meant = keys_meant(text)
    return meant[0] if len(meant) == 1 else text


def parse_value(text: str) -> YamlTree:
    """Return the value that the text after ``key=`` gives; its type is checked later."""
    # Lists, sections and quotes are YAML; all else is one scalar, which may begin with @ or %.
    if text[:1] in ("[", "{", '"', "'"):
        return parse_yaml(text, ON_COMMAND_LINE.file)
    return YamlTree(scalar(text), {(): ON_COMMAND_LINE}, [])


def _put(tree: YamlTree, path: KeyPath, parsed: YamlTree) -> None:
    """Set the value at ``path``; it replaces what an earlier override set there or above."""
    section = tree.value
    for length, step in enumerate(path[:-1], 1):
        inside = section.setdefault(step, {})
        if isinstance(inside, list):
            given = dotted(path[:length])
            problem = f"is an entry of {given}, which another --set gives; write it there"
            tree.findings.append(Finding(ON_COMMAND_LINE, dotted(path), problem))
            return
        if not isinstance(inside, dict):
            inside = section[step] = {}
        section = inside
    for replaced in [place for place in tree.places if place[: len(path)] == path]:
        del tree.places[replaced]
    section[path[-1]] = parsed.value
    for length in range(1, len(path)):
        tree.places.setdefault(path[:length], ON_COMMAND_LINE)
    for below in parsed.places:
        tree.places[path + below] = ON_COMMAND_LINE


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
    tree: YamlTree
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
    if name_or_path.endswith(RECIPE_SUFFIXES):
        return path
    shipped = shipped_file(name_or_path)
    if shipped is not None:
        return shipped
    if "/" in name_or_path and (not is_near_shipped(name_or_path) or path.exists()):
        return path
    if meant := recipes_meant(path):
        write = str(meant[0].relative_to(folder))
        what = "the recipe of the run" if meant[0].name == RECIPE else "the file of this name"
        text = f"{shown(name_or_path)} is not a shipped recipe; for {what} write {write}."
        raise RecipeError(text).proposing(name_or_path, [write])
    raise RecipeError(meant_by(name_or_path))


def _owner_of_prepared(names: list[str], resolved: list[YamlTree], recipe: Recipe) -> str:
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
