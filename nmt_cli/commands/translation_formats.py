"""The output formats of translations."""

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from nmt_cli.commands.alignment_format import pharaoh
from nmt_cli.commands.fairseq_format import as_fairseq
from nmt_cli.commands.moses_format import as_moses
from nmt_cli.corpus.lines import Line, one_line
from nmt_cli.decoding.translation import Alternative, Translation

Formatter = Callable[[int, Line, Translation], str]


def as_text(number: int, line: Line, translation: Translation) -> str:
    """Return the translation as a line that ends as the source line ended.

    Alignments that were asked for follow after |||, as in Marian.
    """
    carriage_return = "\r" if line.carriage_return else ""
    line_feed = "\n" if line.newline else ""
    links = f" ||| {pharaoh(translation.alignment)}" if translation.alignment else ""
    return translation.text + links + carriage_return + line_feed


def as_tsv(number: int, line: Line, translation: Translation) -> str:
    """Return line number, rank, score and text for each of the n best, and alignments if any."""
    rows = []
    every: list[Translation | Alternative] = [translation, *translation.alternatives]
    for rank, found in enumerate(every, start=1):
        shown_score = "" if found.score is None else f"{found.score:.6f}"
        columns = [str(number), str(rank), shown_score, found.text.replace("\t", " ")]
        columns += [pharaoh(found.alignment)] if found.alignment else []
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
        **_if_asked_for(translation),
    }
    return one_line(json.dumps(record, ensure_ascii=False)) + "\n"


def _record(other: Alternative) -> dict[str, Any]:
    fields = {"text": other.text, "score": other.score, "tokens": other.tokens}
    return {**fields, **_if_asked_for(other)}


def _if_asked_for(found: Translation | Alternative) -> dict[str, Any]:
    """Return the scores of tokens, the alignment, and how often each rule of repair was applied.

    What was not asked for, and the repairs of what is no parse, are left out.
    """
    fields: dict[str, Any] = {}
    if found.token_scores:
        fields["token_scores"] = found.token_scores
    if found.alignment:
        fields["alignment"] = found.alignment
    if found.repairs is not None:
        repairs = asdict(found.repairs).items()
        fields["repairs"] = {rule: count for rule, count in repairs if count}
    return fields


FORMATS: dict[str, Formatter] = {
    "text": as_text,
    "tsv": as_tsv,
    "jsonl": as_jsonl,
    "moses": as_moses,
    "fairseq": as_fairseq,
}
