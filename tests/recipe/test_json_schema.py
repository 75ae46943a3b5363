"""The JSON Schema takes what the reader takes, as editors read it: YAML 1.2, with types."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from nmt_cli.recipe.documentation import recipe_schema
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.recipe.reading.recipe_files import dump_recipe
from nmt_cli.recipe.reading.shipped import shipped_recipes
from tests.recipe.conftest import problems_of

FILES = sorted((Path(__file__).parents[2] / "recipes").rglob("*.yaml"))
SCHEMA = recipe_schema()
COMMENTS = {"$schema", "$defs", "title", "description", "default", "format"}
TYPES: dict[str, Any] = {
    "object": dict, "array": list, "string": str, "boolean": bool, "null": type(None),
    "integer": int, "number": (int, float),
}  # fmt: skip


class Core(yaml.BaseLoader):
    """YAML 1.2's core schema (section 10.3.2), which editors use: no is text, 1e-9 a number."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - as PyYAML has it


for tag, pattern in {
    "null": r"null|Null|NULL|~|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?[0-9]+",
    "float": r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?",
}.items():
    Core.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"^(?:{pattern})$"), None)
Core.add_constructor("tag:yaml.org,2002:null", lambda *_: None)
Core.add_constructor("tag:yaml.org,2002:bool", lambda _, node: node.value.lower() == "true")
Core.add_constructor("tag:yaml.org,2002:int", lambda _, node: int(node.value))
Core.add_constructor("tag:yaml.org,2002:float", lambda _, node: float(node.value))


def load(text):
    return yaml.load(text, Loader=Core)


def is_valid(value, schema=SCHEMA):
    """Check by the words of JSON Schema 2020-12; a word that is not known here fails the test."""
    checks = {
        "$ref": lambda ref: is_valid(value, SCHEMA["$defs"][ref.rpartition("/")[2]]),
        "anyOf": lambda options: any(is_valid(value, option) for option in options),
        "type": lambda name: (
            isinstance(value, TYPES[name]) and (name == "boolean" or not isinstance(value, bool))
        ),
        "enum": lambda options: value in options,
        "minimum": lambda limit: value >= limit,
        "maximum": lambda limit: value <= limit,
        "exclusiveMinimum": lambda limit: value > limit,
        "exclusiveMaximum": lambda limit: value < limit,
        "minLength": lambda limit: len(value) >= limit,
        "maxLength": lambda limit: len(value) <= limit,
        "pattern": lambda pattern: re.search(pattern, value) is not None,
        "minItems": lambda limit: len(value) >= limit,
        "maxItems": lambda limit: len(value) <= limit,
        "items": lambda item: all(is_valid(entry, item) for entry in value),
        "prefixItems": lambda items: all(map(is_valid, value, items)),
        "required": lambda names: set(names) <= set(value),
        "properties": lambda known: all(is_valid(value[k], known[k]) for k in value if k in known),
        "additionalProperties": lambda each: (
            all(is_valid(entry, each) for entry in value.values())
            if isinstance(each, dict)
            else set(value) <= set(schema["properties"])
        ),
    }
    words = sorted(set(schema) - COMMENTS, key=lambda word: word != "type")  # the type first
    return all(checks[word](schema[word]) for word in words)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_schema_takes_the_shipped_recipes(path):
    assert is_valid(load(path.read_text(encoding="utf-8")))


def test_the_schema_takes_every_recipe_as_it_is_shown():
    for name in shipped_recipes():
        assert is_valid(load(dump_recipe(read_recipe(name).recipe)))


@pytest.mark.parametrize(
    "text",
    [
        "model: {num_layer: 2}",
        "model: {num_layers: 0}",
        "model: {num_layers: 2.5}",
        "model: {num_layers: two}",
        "model: {num_layers: null}",
        "model: {dropout: 1}",
        "model: {norm: middle}",
        "model: 3",
        "training: {clip_norm: 0}",
        "training: {adam_betas: [0.9]}",
        "training: {seed: 9223372036854775808}",
        "data: {train: [{source: a}]}",
        "data: {train: []}",
        "data: {test: []}",
        "data: {test: [{source: a, target: b}]}",
        "data: {validation: [{name: a, source: a, target: b, nam: c}]}",
        "data: {source_language: e n}",
        "data: {filters: {remove_duplicates: yes please}}",
        "validation: {bleu: never}",
        "optimizer: adam",
        "data: {stages: [{weights: {a: -1}}]}",
        "data: {stages: [{weights: [a]}]}",
    ],
)
def test_the_schema_refuses_what_the_reader_refuses(text, write):
    path = write(f"extends: quickstart\n{text}\n")
    assert problems_of(path)
    assert not is_valid(load(f"extends: quickstart\n{text}\n"))


@pytest.mark.parametrize(
    "text",
    [
        "validation: {bleu: off}",
        "data: {source_language: no}",
        "training: {adam_epsilon: 1e-9, clip_norm: null, max_steps: null, max_epochs: 3}",
        "data: {validation: {source: other.en}}",
        "data: {train: [{source: a, target: b, name: c}], stages: [{weights: {c: 2}}]}",
        "data: {validation: [{name: a, source: a, target: b}], test: null}",
    ],
)
def test_the_schema_accepts_what_a_child_may_contain(text, write):
    assert read_recipe(write(f"extends: quickstart\n{text}\n"))
    assert is_valid(load(f"extends: quickstart\n{text}\n"))


def test_a_recipe_without_a_parent_needs_its_text():
    assert is_valid({"extends": "base"})
    assert not is_valid({"description": "x"})


def test_every_default_is_valid():
    sections = [SCHEMA, *SCHEMA["$defs"].values()]
    defaults = [p for s in sections for p in s["properties"].values() if "default" in p]
    assert len(defaults) > 30
    assert all(is_valid(prop["default"], prop) for prop in defaults)
