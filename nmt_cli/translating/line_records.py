"""The JSON objects that stand for the request and for the translation of a line."""

from __future__ import annotations

from typing import Any

from nmt_cli.files.lines import why_not_unicode
from nmt_cli.translating.record_keys import LINE, refuse_wrong
from nmt_cli.translating.request import AnyOf, Request
from nmt_cli.translating.translation import Alternative, Translation


def request_of(record: dict[str, Any]) -> Request:
    """Return what a JSON object asks for. Raises ValueError if a key or a value is wrong."""
    refuse_wrong(record, LINE)
    if (reason := why_not_unicode(record["text"])) is not None:
        raise ValueError(f"{reason} in the text")
    if required := record.get("required"):
        record["required"] = [_constraint(each) for each in required]
    return Request(**record)


def _constraint(value: Any) -> Any:
    return AnyOf(value["any_of"]) if isinstance(value, dict) else value


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
        repairs = vars(found.repairs).items()
        fields["repairs"] = {rule: count for rule, count in repairs if count}
    return fields
