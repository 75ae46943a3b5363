"""The input formats of ``translate``: text and jsonl."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from nmt_cli.commands.lines.translation_formats import Formatter
from nmt_cli.files.lines import Line, is_blank
from nmt_cli.translating.line_records import request_of
from nmt_cli.translating.request import Request
from nmt_cli.translating.translation import Translation

Reader = Callable[[int, Line], Request]


def reader(input_format: str, output_format: str) -> Reader:
    """Return the function that makes a request of a line and its number."""
    if input_format == "jsonl":
        return partial(as_record, holds_n_best=output_format != "text")
    return as_plain


def showing_texts(format_line: Formatter) -> Formatter:
    """Return ``format_line`` for lines that are JSON objects: it shows the text in the object."""

    def formatted(number: int, line: Line, translation: Translation) -> str:
        request = as_record(number, line, holds_n_best=True)
        shown = line._replace(text=request.text) if request.error is None else line
        return format_line(number, shown, translation)

    return formatted


def as_plain(number: int, line: Line) -> Request:
    """Return the text of the line with its number in the whole text."""
    return Request(line.text, line=number)


def as_record(number: int, line: Line, *, holds_n_best: bool) -> Request:
    """Return what the JSON object of the line asks for, or a request with an error.

    A blank line asks for nothing. It is an error to ask for several translations if the output does
    not ``holds_n_best``.
    """
    if is_blank(line.text):
        return Request("", line=number)
    try:
        request = request_of(_record(line.text))
        if not holds_n_best and request.n_best is not None and request.n_best > 1:
            raise ValueError(f"n_best {request.n_best} needs --format tsv, jsonl, moses or fairseq")
    except ValueError as error:
        return Request("", line=number, error=str(error))
    return request._replace(line=number)


def _record(text: str) -> dict[str, Any]:
    try:
        record = json.loads(text, object_pairs_hook=_with_unique_keys, parse_int=_number)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error.msg} at character {error.pos + 1:,}") from None
    except RecursionError:
        raise ValueError("it is not JSON that can be read: it is nested too deeply") from None
    if not isinstance(record, dict):
        raise ValueError("it is not a JSON object")
    return record


def _number(digits: str) -> int:
    try:
        return int(digits)
    except ValueError:
        raise ValueError(f"a number has {len(digits):,} digits, more than can be read") from None


def _with_unique_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {json.dumps(repeated)} is given twice")
    return record
