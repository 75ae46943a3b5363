"""The JSON Schema of a recipe file; editors use it to complete and check recipes."""

from typing import Any, TypeAlias

from nmt_cli.recipe.schema import Recipe

JsonSchema: TypeAlias = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
# For types with a validator function, pydantic writes limits under its own names.
LIMITS = {
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
        LIMITS.get(name, name): _in_standard_words(value)
        for name, value in schema.items()
        if not (name == "title" and isinstance(value, str))
    }
