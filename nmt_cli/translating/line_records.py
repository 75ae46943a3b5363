"""The JSON objects that stand for the request and for the translation of a line."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from nmt_cli.files.lines import why_not_unicode
from nmt_cli.messages.proposals import nearest
from nmt_cli.translating.request import AnyOf, Request
from nmt_cli.translating.translation import Alternative, Translation

KEYS = (
    *("text", "prefix", "n_best", "beam_size", "length_penalty", "required", "banned", "split"),
    *("markup", "glossary", "protect", "protect_strict", "alignments"),
)
MARKUP = ("html", "xml", "none")


def request_of(record: dict[str, Any]) -> Request:
    """Return what a JSON object asks for. Raises ValueError if a key or a value is wrong."""
    for key in record:
        if key not in KEYS:
            near = nearest(key, KEYS)
            proposal = f"the nearest is {near[0]}" if near else f"known keys: {', '.join(KEYS)}"
            raise ValueError(f"the key {json.dumps(key)} is unknown; {proposal}")
    if "text" not in record:
        raise ValueError('the key "text" is missing')
    _require(isinstance(record["text"], str), "text", "a string")
    if (reason := why_not_unicode(record["text"])) is not None:
        raise ValueError(f"{reason} in the text")
    for key in ("n_best", "beam_size"):
        number = record.get(key, 1)
        is_number = isinstance(number, int) and not isinstance(number, bool)
        _require(is_number and number >= 1, key, "a whole number, at least 1")
    alpha = record.get("length_penalty", 0)
    is_number = isinstance(alpha, int | float) and not isinstance(alpha, bool)
    _require(is_number, "length_penalty", "a number")
    for key in ("split", "protect_strict", "alignments"):
        _require(isinstance(record.get(key, False), bool), key, "true or false")
    protect = record.get("protect", [])
    is_list = isinstance(protect, list) and all(isinstance(each, str) for each in protect)
    _require(is_list, "protect", "a list of patterns")
    _require(record.get("markup", "none") in MARKUP, "markup", "html, xml or none")
    what = "a string or a list of pieces"
    _require(_is_phrase(record.get("prefix", "")), "prefix", what)
    banned, required = record.get("banned", []), record.get("required", [])
    is_list = isinstance(banned, list) and all(map(_is_phrase, banned))
    _require(is_list, "banned", f"a list, in which each phrase is {what}")
    is_list = isinstance(required, list) and all(map(_is_constraint, required))
    _require(is_list, "required", f"a list, in which each phrase is {what}, or an any_of of these")
    glossary = record.get("glossary", {})
    is_map = isinstance(glossary, dict) and all(map(_is_phrase, glossary.values()))
    _require(is_map, "glossary", "an object, in which each term has a string or a list of strings")
    if required:
        record["required"] = [_constraint(each) for each in required]
    return Request(**record)


def _is_constraint(value: Any) -> bool:
    """Return whether ``value`` is a phrase or, such as {"any_of": ["a", "b"]}, a choice of some."""
    if not isinstance(value, dict):
        return _is_phrase(value)
    forms = value.get("any_of")
    is_list = isinstance(forms, list) and bool(forms) and all(map(_is_phrase, forms))
    return is_list and len(value) == 1


def _constraint(value: Any) -> Any:
    return AnyOf(value["any_of"]) if isinstance(value, dict) else value


def _is_phrase(value: Any) -> bool:
    is_list = isinstance(value, list) and all(isinstance(piece, str) for piece in value)
    return isinstance(value, str) or is_list


def _require(condition: bool, key: str, allowed: str) -> None:
    if not condition:
        raise ValueError(f"{key} must be {allowed}")


def record_of(translation: Translation) -> dict[str, Any]:
    """Return everything that is known about the translation of a line, for a JSON object."""
    return {
        "text": translation.text,
        "score": translation.score,
        "tokens": translation.tokens,
        "alternatives": [_record(other) for other in translation.alternatives],
        "error": translation.error,
        "num_parts": translation.num_parts,
        "truncated": translation.truncated,
        **_if_asked_for(translation),
    }


def _record(other: Alternative) -> dict[str, Any]:
    fields = {"text": other.text, "score": other.score, "tokens": other.tokens}
    return {**fields, **_if_asked_for(other)}


def _if_asked_for(found: Translation | Alternative) -> dict[str, Any]:
    """Return token scores, alignment, text that is not copied, and how often rules repaired it.

    What was not asked for, and the repairs of what is no parse, are left out.
    """
    fields: dict[str, Any] = {}
    if found.token_scores:
        fields["token_scores"] = found.token_scores
    if found.alignment:
        fields["alignment"] = found.alignment
    if found.not_copied:
        fields["not_copied"] = found.not_copied
    if found.repairs is not None:
        repairs = asdict(found.repairs).items()
        fields["repairs"] = {rule: count for rule, count in repairs if count}
    return fields
