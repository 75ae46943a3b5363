"""Merges a recipe into its parent, and ``--set`` into both, section by section and key by key."""

import re
import shlex
from collections.abc import Sequence
from typing import Any

from nmt_cli.messages.errors import RecipeError
from nmt_cli.messages.figures import counted
from nmt_cli.recipe.keys import keys_meant, section_at
from nmt_cli.recipe.messages import dotted, shown
from nmt_cli.recipe.yaml_tree import Finding, KeyPath, Place, Tree, parse_yaml, scalar

ON_COMMAND_LINE = Place("--set", None)
WRITTEN_AS_YAML = re.compile(r"([\w.-]+)(?:\s*:\s*|\s+)(\S.*)", re.DOTALL)


def merge(parent: Tree, child: Tree) -> Tree:
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
    return Tree(value, {**inherited, **child.places}, [*parent.findings, *hidden, *child.findings])


def parse_overrides(overrides: Sequence[str], below: Any = None) -> Tree:
    """Return ``overrides``, each ``section.key=value``, as a tree like that of a recipe file.

    ``below`` is the value of the recipe that they change. Where it holds a list, a number in a key
    is the index of an entry; the result then holds a dictionary with integer keys, such as
    ``{0: ...}``, which a YAML file cannot give.
    """
    tree = Tree({}, {}, [])
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


def parse_value(text: str) -> Tree:
    """Return the value that the text after ``key=`` gives; its type is checked later."""
    # Lists, sections and quotes are YAML; all else is one scalar, which may begin with @ or %.
    if text[:1] in ("[", "{", '"', "'"):
        return parse_yaml(text, ON_COMMAND_LINE.file)
    return Tree(scalar(text), {(): ON_COMMAND_LINE}, [])


def _put(tree: Tree, path: KeyPath, parsed: Tree) -> None:
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
