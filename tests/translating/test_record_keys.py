"""The keys of records: a JSON Schema, and what the program takes."""

import json
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from nmt_cli.parsing.tree_output import Repairs
from nmt_cli.translating.interface.record_keys import (
    LINE,
    TRANSLATION,
    object_of,
    record_of,
    request_of,
)
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.interface.translation import Alternative, MemoryMatch, Translation

TEXT = st.text("ab", max_size=2)
PHRASES = st.lists(TEXT | st.lists(TEXT, max_size=2) | st.integers(0, 1), max_size=2)
NUMBERS = st.integers(-1, 2) | st.sampled_from([0.5, -0.5])
FORMS = st.dictionaries(st.sampled_from(["any_of", "any"]), PHRASES | TEXT, max_size=2)
VALUES = st.one_of(
    st.none(), st.booleans(), NUMBERS, TEXT, st.sampled_from(["html", "xml", "none"]), PHRASES,
    st.lists(FORMS | TEXT, max_size=2), st.dictionaries(TEXT, PHRASES | TEXT, max_size=2),
)  # fmt: skip


@example("required", [{"any_of": []}], True)
@example("required", [{}], True)
@given(st.sampled_from([*LINE, "other"]), VALUES, st.booleans())
def test_records_are_taken_as_a_library_of_json_schema_takes_them(name, value, has_text):
    record = {**({"text": "a"} if has_text else {}), name: value}
    is_valid = Draft202012Validator(object_of(LINE, is_closed=True)).is_valid(record)
    if is_valid:
        assert request_of(record).text == record["text"]
    else:
        with pytest.raises(ValueError, match=r" must be |is missing|is unknown"):
            request_of(record)


def test_every_key_is_a_field_of_a_request():
    of_services = {"tags", "source_language"}  # the lists of DeepL, and what a pair is in
    assert set(LINE) == set(Request._fields) - {"line", "error", *of_services}


def test_all_that_is_known_of_a_translation_is_described():
    repairs = replace(Repairs(), **dict.fromkeys(vars(Repairs()), 1))
    best = Alternative("a", -1.0, ("a",), repairs, -1.0, (-1.0, 0.0), ((0, 0),), ("b",))
    match = MemoryMatch("a", "b", 90)
    translation = Translation(**vars(best), alternatives=(best,), memory=(match,))
    found = record_of(translation)
    assert set(found) == set(TRANSLATION)
    validator = Draft202012Validator(object_of(TRANSLATION, is_closed=True))
    for record in (found, record_of(Translation(error="why"))):
        validator.validate(json.loads(json.dumps(record)))
