"""Meaning, allowed values and default of each key: a list, YAML comments, a JSON Schema."""

import textwrap
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

from nmt_cli.messages.proposals import any_of
from nmt_cli.recipe.keys import as_written, last_name, recipe_keys
from nmt_cli.recipe.reading.problem_messages import dotted
from nmt_cli.recipe.reading.yaml_tree import parse_yaml, write_yaml
from nmt_cli.recipe.schema import Recipe
from nmt_cli.recipe.values import Section

WIDTH = 100
LIMITS = {
    "minimum": "at least",
    "exclusiveMinimum": "greater than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
}
NAMES = {"integer": "whole number", "number": "number", "boolean": "true or false", "null": "null"}

JsonSchema: TypeAlias = dict[str, Any]


class DescribedKey(NamedTuple):
    """One key of a recipe; the keys of a list's entries are named once, as those of entry 0."""

    name: str
    description: str
    allowed: str  # empty for a section
    default: str | None  # as YAML; None if the key has no default


def described_keys() -> Iterator[DescribedKey]:
    """Yield every key in the order of a recipe, each section before the keys in it."""
    schema = recipe_schema()
    yield DescribedKey("extends", EXTENDS["description"], _allowed(EXTENDS, schema), None)
    prefixes = {"": ""}  # of the keys in each section, with the number of the entry of a list
    for key in recipe_keys().values():
        section, _, last = key.name.rpartition(".")
        prop, name = _properties(key.owner, schema)[last], prefixes[section] + last
        prefixes[key.name] = f"{name}.0." if "items" in prop else f"{name}."
        default = as_written(prop["default"]) if "default" in prop else None
        yield DescribedKey(name, key.description, _allowed(prop, schema), default)


def with_comments(recipe: Recipe) -> str:
    """Return the recipe as YAML with a comment above each key; it reads back as the same recipe.

    Of a list, only the keys of the first entry have comments.
    """
    text = write_yaml(recipe.model_dump(mode="json"))
    lines, keys = text.split("\n"), {key.name: key for key in described_keys()}
    places = parse_yaml(text, "").places
    # From the last line up, so that the lines of the others stay the same.
    for path, (_, line) in sorted(places.items(), key=lambda item: -(item[1].line or 0)):
        name = dotted(path)
        if name not in keys:  # a list of sets has the keys of a set
            name = name.replace(".0.", ".")
        if line is not None and name in keys:
            written = lines[line - 1]
            below = [key for key in keys if key.rpartition(".")[0] in {name, f"{name}.0"}]
            comment = [*_comment(keys[name], [each.rpartition(".")[2] for each in below], written)]
            space = [""] if below and len(path) == 1 else []
            lines[line - 1 : line - 1] = [*space, *comment]
    return "\n".join(lines)


def _comment(key: DescribedKey, keys_below: list[str], written: str) -> list[str]:
    """Return the comment above the line ``written``, which holds ``key``."""
    text = key.description
    if not keys_below:
        text += f" [{limits_of(key)}]"
    elif written.endswith(": null"):
        text += f" [null, or a section with {' and '.join(keys_below)}]"
    start = f"{written[: len(written) - len(written.lstrip())]}# "
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=start,
        subsequent_indent=start,
        break_long_words=False,
        break_on_hyphens=False,
    )


def limits_of(key: DescribedKey) -> str:
    """Return what a key may hold and its default: ``number, at least 0; default 0.6``."""
    default = None if key.default is None else f"default {key.default}"
    return "; ".join(text for text in (key.allowed, default) if text)


def _properties(section: type[Section], schema: JsonSchema) -> JsonSchema:
    definition = schema if section is Recipe else schema["$defs"][section.__name__]
    properties: JsonSchema = definition["properties"]
    return properties


def _allowed(prop: JsonSchema, schema: JsonSchema) -> str:
    if "$ref" in prop:
        return "section"
    if "anyOf" in prop:
        texts = [_allowed(option, schema) for option in prop["anyOf"]]
        return (", or " if "," in texts[0] else " or ").join(texts)
    if "enum" in prop:
        return any_of(prop["enum"])
    if "prefixItems" in prop:
        first = _allowed(prop["prefixItems"][0], schema)
        return f"list of {len(prop['prefixItems'])}, each a {first}"
    if prop["type"] == "object":
        return f"section of names, each with a {_allowed(prop['additionalProperties'], schema)}"
    if prop["type"] == "array":
        return f"list, each a {_allowed(prop['items'], schema)}"
    if prop["type"] == "string":
        is_language = "pattern" in prop
        is_path = prop.get("format") == "path"
        return "language code such as en" if is_language else "path" if is_path else "text"
    found = [f"{text} {_number(prop[name])}" for name, text in LIMITS.items() if name in prop]
    return ", ".join(filter(None, [NAMES[prop["type"]], " and ".join(found)]))


def _number(limit: float) -> str:
    return f"{limit:,}" if isinstance(limit, int) else f"{limit:g}"


DIALECT = "https://json-schema.org/draft/2020-12/schema"
# For types with a validator function, pydantic writes limits under its own names. Where it
# distinguishes a section from a list of sections, oneOf would mean the same as anyOf.
STANDARD_WORDS = {
    "oneOf": "anyOf",
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
}
EXTENDS = {
    "type": "string",
    "description": "Recipe that gives all values which this file leaves out: the name of a shipped "
    "one, or a path relative to this file.",
}


def recipe_schema() -> JsonSchema:
    """Return the JSON Schema of one file; it does not require keys that a parent may give."""
    schema = _in_standard_words(Recipe.model_json_schema())
    for key in recipe_keys().values():
        _properties(key.owner, schema)[last_name(key.name)]["description"] = key.description
    entries = {
        prop["items"]["$ref"]
        for section in schema["$defs"].values()
        for prop in section["properties"].values()
        if "$ref" in prop.get("items", {})
    }
    for name, section in schema["$defs"].items():
        if f"#/$defs/{name}" not in entries:  # entries of a list inherit nothing
            section.pop("required", None)
    return {
        "$schema": DIALECT,
        "title": "nmt-cli recipe",
        "description": schema["description"],
        "type": "object",
        "anyOf": [{"required": ["extends"]}, {"required": schema["required"]}],
        "properties": {"extends": EXTENDS, **schema["properties"]},
        "additionalProperties": False,
        "$defs": schema["$defs"],
    }


def _in_standard_words(schema: Any) -> Any:
    """Return the schema with standard limits, and without titles that only repeat the key."""
    if isinstance(schema, list):
        return [_in_standard_words(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        STANDARD_WORDS.get(name, name): _in_standard_words(value)
        for name, value in schema.items()
        if not (name == "title" and isinstance(value, str))
    }
