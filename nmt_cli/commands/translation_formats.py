"""The output formats of translations: text, tsv and jsonl."""

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from nmt_cli.corpus.lines import Line, one_line
from nmt_cli.decoding.translation import Alternative, Translation

Formatter = Callable[[int, Line, Translation], str]


def as_text(number: int, line: Line, translation: Translation) -> str:
    """Return the translation as a line that ends as the source line ended."""
    carriage_return = "\r" if line.carriage_return else ""
    line_feed = "\n" if line.newline else ""
    return translation.text + carriage_return + line_feed


def as_tsv(number: int, line: Line, translation: Translation) -> str:
    """Return line number, rank, score and text for each of the n best."""
    ranked = [(translation.score, translation.text)]
    ranked += [(other.score, other.text) for other in translation.alternatives]
    rows = []
    for rank, (score, text) in enumerate(ranked, start=1):
        shown_score = "" if score is None else f"{score:.6f}"
        columns = (str(number), str(rank), shown_score, text.replace("\t", " "))
        rows.append("\t".join(columns) + "\n")
    return "".join(rows)


def as_jsonl(number: int, line: Line, translation: Translation) -> str:
    """Return one JSON object with everything that is known about the line."""
    record = {
        "line": number,
        "text": translation.text,
        "score": translation.score,
        "tokens": translation.tokens,
        "alternatives": [_record(other) for other in translation.alternatives],
        "error": translation.error,
        "num_parts": translation.num_parts,
        "truncated": translation.truncated,
        **_repairs(translation),
    }
    return one_line(json.dumps(record, ensure_ascii=False)) + "\n"


def _record(other: Alternative) -> dict[str, Any]:
    fields = {"text": other.text, "score": other.score, "tokens": other.tokens}
    return {**fields, **_repairs(other)}


def _repairs(parse: Translation | Alternative) -> dict[str, Any]:
    """Return how often each rule of ``trees.repair`` was applied; nothing if it is no parse."""
    if parse.repairs is None:
        return {}
    return {"repairs": {rule: count for rule, count in asdict(parse.repairs).items() if count}}


FORMATS: dict[str, Formatter] = {"text": as_text, "tsv": as_tsv, "jsonl": as_jsonl}
