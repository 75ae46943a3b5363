"""The input formats of ``translate``: text and jsonl."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from nmt_cli.commands.lines.translation_formats import Formatter
from nmt_cli.files.lines import Line, is_blank, why_not_unicode
from nmt_cli.messages.proposals import nearest
from nmt_cli.translating.request import AnyOf, Request
from nmt_cli.translating.translation import Translation

Reader = Callable[[int, Line], Request]
KEYS = (
    *("text", "prefix", "n_best", "beam_size", "length_penalty", "required", "banned", "split"),
    *("markup", "glossary"),
)
MARKUP = ("html", "xml", "none")


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
        request = _request(_record(line.text))
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


def _request(record: dict[str, Any]) -> Request:
    """Return the request. Raises ValueError if a key or a value is wrong."""
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
    _require(isinstance(record.get("split", False), bool), "split", "true or false")
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
