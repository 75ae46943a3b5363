"""The JSON objects that ask for the translation of a line, and that hold it; their keys."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from nmt_cli.files.lines import why_not_unicode
from nmt_cli.messages.proposals import any_of, nearest
from nmt_cli.recipe.translation_options import CHOICES, NUMBERS
from nmt_cli.translating.interface.request import AnyOf, Request
from nmt_cli.translating.interface.translation import Alternative, Translation

Schema = dict[str, Any]  # a JSON Schema; those of requests have only the keywords of ``fits``


class Key(NamedTuple):
    """A key of a JSON object."""

    allowed: str  # its values, in words
    meaning: str
    schema: Schema
    is_needed: bool = False
    of_each: Mapping[str, Key] = {}  # the keys of the objects, if the value is a list of these


def list_of(items: Schema, least: int = 0) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": items, **({"minItems": least} if least else {})}


def object_of(keys: Mapping[str, Key], *, is_closed: bool = False) -> Schema:
    """Return the schema of an object with these keys; a closed one has no others."""
    found: Schema = {
        "type": "object",
        "properties": {
            name: {**key.schema, "description": f"{key.allowed}: {key.meaning}"}
            for name, key in keys.items()
        },
    }
    if needed := [name for name, key in keys.items() if key.is_needed]:
        found["required"] = needed
    return {**found, "additionalProperties": False} if is_closed else found


def objects(meaning: str, keys: Mapping[str, Key]) -> Key:
    """Return a key whose value is a list of objects with ``keys``; it is always there."""
    return Key("a list of objects", meaning, list_of(object_of(keys)), True, keys)


STRING, NUMBER, NULL = ({"type": name} for name in ("string", "number", "null"))
TRUTH: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 1}
FROM_0: Schema = {"type": "integer", "minimum": 0}
PHRASE: Schema = {"anyOf": [STRING, list_of(STRING)]}
FORMS: Schema = {
    "type": "object",
    "properties": {"any_of": list_of(PHRASE, 1)},
    "required": ["any_of"],
    "additionalProperties": False,
}


def number(name: str, meaning: str) -> Key:
    """Return the key for the option ``name``."""
    if not (possible := NUMBERS[name]).is_whole:
        return Key("a number", f"{meaning}, from {possible.least} to {possible.most}", NUMBER)
    least = possible.least
    schema = {"type": "integer", "minimum": least}
    return Key(f"a whole number, at least {least}", meaning, schema)


def choice(name: str, meaning: str, *others: str) -> Key:
    """Return the key for the option ``name``, for which a line may choose ``others``, too."""
    choices = [*CHOICES[name], *others]
    return Key(any_of(choices), meaning, {"enum": choices})


# What a line may ask for.
LINE: Mapping[str, Key] = {
    "text": Key("a string", "what to translate", STRING, is_needed=True),
    "prefix": Key("a string or a list of pieces", "what the translation begins with", PHRASE),
    "n_best": number("n_best", "how many translations"),
    "choose": choice(
        "choose", "what ranks them; mbr is their agreement in chrF (minimum Bayes risk)"
    ),
    "beam_size": number("beam_size", "hypotheses of its search"),
    "length_penalty": number("length_penalty", "exponent of the length penalty"),
    "no_repeat_ngram": number(
        "no_repeat_ngram", "the translation never repeats a sequence of so many pieces"
    ),
    "required": Key(
        "a list, in which each phrase is a string or a list of pieces, or an any_of of these",
        "phrases that occur in the translation",
        list_of({"anyOf": [*PHRASE["anyOf"], FORMS]}),
    ),
    "banned": Key(
        "a list, in which each phrase is a string or a list of pieces",
        "phrases that do not occur",
        list_of(PHRASE),
    ),
    "split": Key("true or false", "whether each sentence is translated by itself", TRUTH),
    "markup": choice("markup", "what the text is written in", "none"),
    "glossary": Key(
        "an object, in which each term has a string or a list of strings",
        "terms, and their translation or its forms",
        {"type": "object", "additionalProperties": PHRASE},
    ),
    "protect": Key(
        "a list of patterns", "regular expressions of text that is copied", list_of(STRING)
    ),
    "protect_strict": Key("true or false", "whether the line fails if that is not so", TRUTH),
    "alignments": Key("true or false", "whether words are aligned", TRUTH),
    "tag": Key(
        "a string", "the tag of its pair of languages, in place of that of all lines", STRING
    ),
}

# What is known of one translation. What need not be there was not asked for, or is empty.
ALTERNATIVE: Mapping[str, Key] = {
    "text": Key("a string", "the translation", STRING, is_needed=True),
    "score": Key("a number", "log-probability over the length penalty", NUMBER, is_needed=True),
    "tokens": Key("a list of strings", "its pieces", list_of(STRING), is_needed=True),
    "token_scores": Key(
        "a list of numbers", "log-probability of each piece and of `</s>`", list_of(NUMBER)
    ),
    "alignment": Key(
        "a list of pairs",
        "a source word and the target word that attends to it, counted from 0; words are what "
        "white space separates",
        list_of(list_of(FROM_0)),
    ),
    "not_copied": Key(
        "a list of strings", "protected text that it does not have as often", list_of(STRING)
    ),
    "repairs": Key("an object", "how often each rule made it a tree", {"type": "object"}),
}
TRANSLATION: Mapping[str, Key] = {
    "text": Key(
        "a string", "the best translation; empty if the text is blank or failed", STRING, True
    ),
    "score": Key(
        "a number or null",
        "log-probability over the length penalty; null if there is no translation",
        {"anyOf": [NUMBER, NULL]},
        is_needed=True,
    ),
    "tokens": ALTERNATIVE["tokens"],
    "alternatives": Key(
        "a list of objects",
        "the second to `n_best`-th translations, best first: `text`, `score`, `tokens` and the "
        "last four keys",
        list_of(object_of(ALTERNATIVE, is_closed=True)),
        is_needed=True,
    ),
    "error": Key(
        "a string or null",
        "why this text could not be translated: also an option that it cannot have, such as an "
        "`n_best` above the beam size",
        {"anyOf": [STRING, NULL]},
        is_needed=True,
    ),
    "num_parts": Key("a number", "more than 1 if it was too long as a whole", FROM_0, True),
    "truncated": Key("true or false", "whether its end was cut off", TRUTH, is_needed=True),
    **{name: key for name, key in ALTERNATIVE.items() if not key.is_needed},
    "memory": Key(
        "a list of objects",
        "segments of a memory with `source`, `target` and `similarity`: with 100 it is the "
        "translation, others are only shown",
        list_of({"type": "object"}),
    ),
}


def refuse_wrong(record: Mapping[str, Any], keys: Mapping[str, Key]) -> None:
    """Raise ValueError if a key of an object is unknown or missing, or if a value is wrong."""
    for name in record:
        if name not in keys:
            near = nearest(name, keys)
            proposal = f"the nearest is {near[0]}" if near else f"known keys: {', '.join(keys)}"
            raise ValueError(f"the key {json.dumps(name)} is unknown; {proposal}")
    for name, key in keys.items():
        if name in record and not fits(record[name], key.schema):
            raise ValueError(f"{name} must be {key.allowed}")
        if name not in record and key.is_needed:
            raise ValueError(f'the key "{name}" is missing')


def fits(value: Any, schema: Schema) -> bool:
    """Return whether a value of JSON is one of ``schema``."""
    if "anyOf" in schema:
        return any(fits(value, each) for each in schema["anyOf"])
    if "enum" in schema:
        return value in schema["enum"]
    if schema["type"] in {"integer", "number"}:
        kinds = int if schema["type"] == "integer" else int | float
        is_number = isinstance(value, kinds) and not isinstance(value, bool)
        return is_number and value >= schema.get("minimum", value)
    if schema["type"] == "array":
        is_list = isinstance(value, list) and len(value) >= schema.get("minItems", 0)
        return is_list and all(fits(each, schema["items"]) for each in value)
    if schema["type"] == "object":
        return isinstance(value, dict) and _fit(value, schema)
    return isinstance(value, str if schema["type"] == "string" else bool)


def _fit(record: Mapping[str, Any], schema: Schema) -> bool:
    """Return whether an object has the keys of ``schema``, and each its values."""
    known, others = schema.get("properties", {}), schema["additionalProperties"]
    has_all = all(name in record for name in schema.get("required", ()))
    return has_all and all(
        fits(value, known[name]) if name in known else others and fits(value, others)
        for name, value in record.items()
    )


def request_of(record: dict[str, Any]) -> Request:
    """Return what a JSON object asks for. Raises ValueError if a key or a value is wrong."""
    refuse_wrong(record, LINE)
    if (reason := why_not_unicode(record["text"])) is not None:
        raise ValueError(f"{reason} in the text")
    if required := record.get("required"):
        record["required"] = [
            AnyOf(each["any_of"]) if isinstance(each, dict) else each for each in required
        ]
    return Request(**record)


def record_of(found: Alternative, keys: Mapping[str, Key] = TRANSLATION) -> dict[str, Any]:
    """Return everything that is known about the translation of a line, for a JSON object.

    What was not asked for, and the repairs of what is no parse, are left out.
    """
    values = {name: getattr(found, name) for name in keys}
    if isinstance(found, Translation):
        values["alternatives"] = [record_of(each, ALTERNATIVE) for each in found.alternatives]
        values["memory"] = [each._asdict() for each in found.memory]
    if found.repairs is not None:
        values["repairs"] = {rule: count for rule, count in vars(found.repairs).items() if count}
    return {
        name: value
        for name, value in values.items()
        if keys[name].is_needed or value or (name == "repairs" and value is not None)
    }
