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

    schema: Schema  # of its values
    meaning: str
    is_needed: bool = False
    words: str = ""  # its values in words, if those made of the schema would be unclear
    of_each: Mapping[str, Key] = {}  # the keys of the objects, if the value is a list of these

    @property
    def allowed(self) -> str:
        """Its values, in words."""
        return self.words or _in_words(self.schema)


def _in_words(schema: Schema) -> str:
    if "anyOf" in schema:
        return " or ".join(map(_in_words, schema["anyOf"]))
    if "enum" in schema:
        return any_of(schema["enum"])
    if schema["type"] == "array":
        return f"a list of {schema['items']['type']}s"
    if schema["type"] == "integer":
        return f"a whole number, at least {schema['minimum']}"
    words = {"boolean": "true or false", "object": "an object", "null": "null"}
    return words.get(schema["type"], f"a {schema['type']}")


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
    return Key(list_of(object_of(keys)), meaning, is_needed=True, of_each=keys)


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
    possible = NUMBERS[name]
    if possible.is_whole:
        return Key({"type": "integer", "minimum": possible.least}, meaning)
    return Key(NUMBER, f"{meaning}, from {possible.least} to {possible.most}")


def choice(name: str, meaning: str, *others: str) -> Key:
    """Return the key for the option ``name``, for which a line may choose ``others``, too."""
    return Key({"enum": [*CHOICES[name], *others]}, meaning)


# What a line may ask for.
LINE: Mapping[str, Key] = {
    "text": Key(STRING, "what to translate", is_needed=True),
    "prefix": Key(PHRASE, "what the translation begins with", words="a string or a list of pieces"),
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
        list_of({"anyOf": [*PHRASE["anyOf"], FORMS]}),
        "phrases that occur in the translation",
        words="a list, in which each phrase is a string or a list of pieces, or an any_of of these",
    ),
    "banned": Key(
        list_of(PHRASE),
        "phrases that do not occur",
        words="a list, in which each phrase is a string or a list of pieces",
    ),
    "split": Key(TRUTH, "whether each sentence is translated by itself"),
    "markup": choice("markup", "what the text is written in", "none"),
    "glossary": Key(
        {"type": "object", "additionalProperties": PHRASE},
        "terms, and their translation or its forms",
        words="an object, in which each term has a string or a list of strings",
    ),
    "protect": Key(
        list_of(STRING), "regular expressions of text that is copied", words="a list of patterns"
    ),
    "protect_strict": Key(TRUTH, "whether the line fails if that is not so"),
    "alignments": Key(TRUTH, "whether words are aligned"),
    "tag": Key(STRING, "the tag of its pair of languages, in place of that of all lines"),
}

# What is known of one translation. What need not be there was not asked for, or is empty.
ALTERNATIVE: Mapping[str, Key] = {
    "text": Key(STRING, "the translation", is_needed=True),
    "score": Key(NUMBER, "log-probability over the length penalty", is_needed=True),
    "tokens": Key(list_of(STRING), "its pieces", is_needed=True),
    "token_scores": Key(list_of(NUMBER), "log-probability of each piece and of `</s>`"),
    "alignment": Key(
        list_of(list_of(FROM_0)),
        "a source word and the target word that attends to it, counted from 0; words are what "
        "white space separates",
        words="a list of pairs",
    ),
    "not_copied": Key(list_of(STRING), "protected text that it does not have as often"),
    "repairs": Key({"type": "object"}, "how often each rule made it a tree"),
}
TRANSLATION: Mapping[str, Key] = {
    "text": Key(
        STRING, "the best translation; empty if the text is blank or failed", is_needed=True
    ),
    "score": Key(
        {"anyOf": [NUMBER, NULL]},
        "log-probability over the length penalty; null if there is no translation",
        is_needed=True,
    ),
    "tokens": ALTERNATIVE["tokens"],
    "alternatives": Key(
        list_of(object_of(ALTERNATIVE, is_closed=True)),
        "the second to `n_best`-th translations, best first: `text`, `score`, `tokens` and the "
        "last four keys",
        is_needed=True,
    ),
    "error": Key(
        {"anyOf": [STRING, NULL]},
        "why this text could not be translated: also an option that it cannot have, such as an "
        "`n_best` above the beam size",
        is_needed=True,
    ),
    "num_parts": Key(FROM_0, "more than 1 if it was too long as a whole", is_needed=True),
    "truncated": Key(TRUTH, "whether its end was cut off", is_needed=True),
    **{name: key for name, key in ALTERNATIVE.items() if not key.is_needed},
    "memory": Key(
        list_of({"type": "object"}),
        "segments of a memory with `source`, `target` and `similarity`: with 100 it is the "
        "translation, others are only shown",
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
