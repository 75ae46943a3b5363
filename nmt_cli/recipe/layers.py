"""A recipe over its parent, and ``--set`` over both: section by section, key by key."""

from collections.abc import Sequence
from typing import Any

from nmt_cli.recipe.messages import dotted, section_at, shown
from nmt_cli.recipe.schema import Recipe
from nmt_cli.recipe.values import Section
from nmt_cli.recipe.yaml_tree import Finding, KeyPath, Place, Tree, parse_yaml, scalar

ON_COMMAND_LINE = Place("--set", None)


def merge(parent: Tree, child: Tree) -> Tree:
    """Return the parent with what the child says in its place; lists are replaced whole."""
    replaced: dict[KeyPath, Any] = {}  # and what stood there
    value = _merge_values(parent.value, child.value, (), replaced)
    hidden = [  # checking the merged recipe would no longer find it
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


def parse_overrides(overrides: Sequence[str]) -> Tree:
    """Return what ``section.key=value`` says in each of ``overrides``, as a recipe would."""
    tree = Tree({}, {}, [])
    for override in overrides:
        key, equals, text = override.partition("=")
        key = key.strip()
        problem = _problem_of_override(key, bool(equals), text)
        if problem:
            tree.findings.append(Finding(ON_COMMAND_LINE, key or "''", problem))
            continue
        parsed = _parse_value(text.strip())
        tree.findings.extend(Finding(ON_COMMAND_LINE, key, found.text) for found in parsed.findings)
        if parsed.readable:
            _put(tree, tuple(key.split(".")), parsed)
    return tree


def _merge_values(parent: Any, child: Any, path: KeyPath, replaced: dict[KeyPath, Any]) -> Any:
    if not isinstance(parent, dict) or not isinstance(child, dict):
        replaced[path] = parent
        return child
    merged = dict(parent)
    for dropped in _dropped_alternatives(parent, child, path):
        replaced[(*path, dropped)] = merged.pop(dropped)
    for key, value in child.items():
        below = (*path, key)
        merged[key] = _merge_values(parent[key], value, below, replaced) if key in parent else value
    return merged


def _dropped_alternatives(
    parent: dict[str, Any], child: dict[str, Any], path: KeyPath
) -> list[str]:
    """Return the parent's keys that a key of the child stands in for (steps for epochs)."""
    field = Recipe.model_fields.get(str(path[0])) if len(path) == 1 else None
    section = field.annotation if field is not None else None
    if not (isinstance(section, type) and issubclass(section, Section)):
        return []
    return [
        key
        for group in section.alternatives
        if any(child.get(key) is not None for key in group)
        for key in sorted(group)
        if key in parent and key not in child
    ]


def _problem_of_override(key: str, has_value: bool, text: str) -> str:
    if key == "extends":
        return "only a file can name its parent"
    if not key or not all(step.strip() for step in key.split(".")):
        return "is not a key; write --set section.key=value"
    if not has_value:
        return f"has no value; write --set {key}=value"
    if any("\ud800" <= character <= "\udfff" for character in key + text):
        return "is not UTF-8 text"
    return ""


def _parse_value(text: str) -> Tree:
    # Lists, sections and quotes are YAML; all else is one scalar, which may begin with @ or %.
    if text[:1] in ("[", "{", '"', "'"):
        return parse_yaml(text, ON_COMMAND_LINE.file)
    return Tree(scalar(text), {(): ON_COMMAND_LINE}, [])


def _put(tree: Tree, path: tuple[str, ...], parsed: Tree) -> None:
    section = tree.value
    for step in path[:-1]:
        section = section.setdefault(step, {})
        if not isinstance(section, dict):
            break
    if not isinstance(section, dict) or path[-1] in section:
        tree.findings.append(Finding(ON_COMMAND_LINE, ".".join(path), "is set twice"))
        return
    section[path[-1]] = parsed.value
    for length in range(1, len(path)):
        tree.places.setdefault(path[:length], ON_COMMAND_LINE)
    for below in parsed.places:
        tree.places[(*path, *below)] = ON_COMMAND_LINE
