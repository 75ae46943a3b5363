"""Records of the input: what they ask for, and the reason why one cannot be read."""

import json

import pytest

from nmt_cli.commands.lines.translation_formats import (
    as_record,
    formatter,
    reader,
)
from nmt_cli.files.lines import Line
from nmt_cli.translating.interface.request import AnyOf, Request
from nmt_cli.translating.interface.translation import Translation

NEEDS_ANOTHER_FORMAT = "n_best 2 needs --format tsv, jsonl, moses or fairseq"


def read(text, *, holds_n_best=True):
    return as_record(7, Line(text, False, True, 0, False), holds_n_best=holds_n_best)


def test_a_record_is_a_request():
    assert read('{"text": "a b"}') == Request("a b", line=7)
    assert read(
        '{"required": ["c", ["d", "e"]], "n_best": 3, "banned": [], "prefix": ["<x>"], '
        '"text": "a\\nb \\ud83d\\ude00"}'
    ) == Request("a\nb \U0001f600", 7, ["<x>"], ["c", ["d", "e"]], [], 3)


def test_a_required_phrase_may_have_several_forms():
    request = read('{"text": "a", "required": [{"any_of": ["b c", ["d"]]}, "e"]}')
    assert request.required == [AnyOf(["b c", ["d"]]), "e"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            '{"text": "a\\ud83d"}',
            "character 2 is U+D83D, half of a surrogate pair in the text",
        ),
        ("plain text", "it is not JSON: Expecting value at character 1"),
        ('{"text": "a"} {}', "it is not JSON: Extra data at character 15"),
        ("[" * 100_000, "it is not JSON that can be read: it is nested too deeply"),
        ('["text"]', "it is not a JSON object"),
        ("17", "it is not a JSON object"),
        ("{}", 'the key "text" is missing'),
        ('{"text": "a", "text": "b"}', 'the key "text" is given twice'),
        ('{"text": "a", "nbest": 2}', 'the key "nbest" is unknown; the nearest is n_best'),
        ('{"text": "a", "Text": "b"}', 'the key "Text" is unknown; the nearest is text'),
        ('{"text": "a", "id": NaN}', "the number NaN is not finite"),
        ('{"text": "a", "id": 1e999}', "the number 1e999 is not finite"),
        ('{"text": null}', "text must be a string"),
        ('{"text": "a", "n_best": true}', "n_best must be a whole number, at least 1"),
        ('{"text": "a", "n_best": 2.0}', "n_best must be a whole number, at least 1"),
        ('{"text": "a", "n_best": 0}', "n_best must be a whole number, at least 1"),
        ('{"text": "a", "beam_size": 0}', "beam_size must be a whole number, at least 1"),
        ('{"text": "a", "length_penalty": "1"}', "length_penalty must be a number"),
        ('{"text": "a", "prefix": 5}', "prefix must be a string or a list of pieces"),
        ('{"text": "a", "split": 1}', "split must be true or false"),
        ('{"text": "a", "markup": "sgml"}', "markup must be html, xml or none"),
        ('{"text": "a", "markup": ["html"]}', "markup must be html, xml or none"),
        (
            '{"text": "a", "required": "b"}',
            "required must be a list, in which each phrase is a string or a list of pieces, or an "
            "any_of of these",
        ),
        *(
            (
                f'{{"text": "a", "required": [{value}]}}',
                "required must be a list, in which each phrase is a string or a list of pieces, "
                "or an any_of of these",
            )
            for value in ('{"any_of": []}', '{"any": ["a"]}', '{"any_of": "a"}')
        ),
        (
            '{"text": "a", "glossary": {"b": 1}}',
            "glossary must be an object, in which each term has a string or a list of strings",
        ),
        (
            '{"text": "a", "banned": [["b", 1]]}',
            "banned must be a list, in which each phrase is a string or a list of pieces",
        ),
    ],
)
def test_a_malformed_record_has_a_reason(text, reason):
    assert read(text) == Request("", line=7, error=reason)


@pytest.mark.parametrize("blank", ["", " ", "\u200b"])
def test_a_blank_line_asks_for_nothing(blank):
    assert read(blank) == Request("", line=7)


def test_a_number_of_too_many_digits_is_an_error_of_its_line():
    error = read('{"text": "a", "n_best": ' + "9" * 9999 + "}").error
    assert error == "a number has 9,999 digits, more than can be read"


def test_several_translations_need_a_format_that_holds_them():
    asked = '{"text": "a", "n_best": 2}'
    assert read(asked, holds_n_best=False).error == NEEDS_ANOTHER_FORMAT
    assert read('{"text": "a", "n_best": 1}', holds_n_best=False).error is None


def test_a_format_that_shows_the_line_shows_the_text_of_a_record():
    def shown(text):
        line = Line(text, False, True, 0, False)
        return formatter("jsonl", "fairseq")(1, line, Translation()).splitlines()[0]

    assert shown('{"text": "a\\tb", "n_best": 2}') == "S-0\ta b"
    assert shown('{"text"') == 'S-0\t{"text"'


KEPT = {
    "id": 17,
    "source": ["a", {"b": None}],
    "url": "http://a.b/?c=\u2028\x85 \x1b",
    "half": "\ud83d",
    "\u001b": 0.5,
}


@pytest.mark.parametrize("kept", [KEPT, {}, {"deep": json.loads("[" * 300 + "]" * 300)}])
@pytest.mark.parametrize("asked", [{"text": "a b"}, {"text": 5}, {}])
def test_keys_that_ask_for_nothing_are_given_back(kept, asked):
    line = Line(json.dumps({**kept, **asked, "score": "mine", "line": 4}), False, True, 0, False)
    request = reader("jsonl", "jsonl")(7, line)
    assert request.text == ("a b" if asked.get("text") == "a b" else "")
    translation = Translation("c", -1.0, ("c",), error=request.error)
    row = formatter("jsonl", "jsonl")(7, line, translation)
    assert row.encode().decode().splitlines() == [row.removesuffix("\n")]
    record = json.loads(row)
    assert {name: value for name, value in record.items() if name in kept} == kept
    answer = json.loads(formatter("text", "jsonl")(7, line, translation))
    assert {name: value for name, value in record.items() if name not in kept} == answer


def test_lines_of_text_have_the_number_they_have_in_the_whole_text():
    line = Line("a", False, True, 0, False)
    assert reader("text", "text")(7, line) == Request("a", line=7)
    record = reader("jsonl", "text")
    asked = Line('{"text": "a", "n_best": 2}', False, True, 0, False)
    assert record(1, asked) == Request("", 1, error=NEEDS_ANOTHER_FORMAT)
    assert reader("jsonl", "text", "mbr")(1, asked) == Request("a", 1, n_best=2)
    by_mbr = asked._replace(text='{"text": "a", "n_best": 2, "choose": "mbr"}')
    assert record(1, by_mbr) == Request("a", 1, n_best=2, choose="mbr")
    scored = asked._replace(text='{"text": "a", "n_best": 2, "choose": "score"}')
    assert reader("jsonl", "text", "mbr")(1, scored).error == NEEDS_ANOTHER_FORMAT
    assert reader("jsonl", "jsonl")(1, scored).error is None
