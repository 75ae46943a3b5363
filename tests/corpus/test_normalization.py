"""What folding leaves out and writes otherwise, against the categories and forms of Unicode."""

import functools
import sys
import unicodedata

import pytest

from nmt_cli.corpus.tokenizers.normalization import folded
from nmt_cli.files.lines import is_blank

# Format characters (Cf) that are seen: numbers and signs of Arabic, Syriac, Kaithi and Egyptian.
SEEN = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
SEEN |= {*range(0x13430, 0x13440)}
JOINERS = {0x200C, 0x200D}
SELECTORS = {*range(0xFE00, 0xFE10), *range(0x180B, 0x1810), *range(0xE0000, 0xE1000)}


@functools.cache
def all_characters():
    """Return the characters that have a meaning, and a text of all others but surrogates."""
    characters = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    others = "".join(each for each in characters if unicodedata.category(each) in {"Cn", "Co"})
    return sorted({*characters} - {*others}), others


def test_what_nobody_sees_is_left_out():
    for character in all_characters()[0]:
        code, category = ord(character), unicodedata.category(character)
        is_format = category == "Cf" and code not in SEEN | JOINERS | SELECTORS
        if is_format or (category == "Cc" and not character.isspace()):
            assert folded(f"a{character}b") == "ab", hex(code)
            assert is_blank(character), hex(code)
        if category[0] in "LNPS" and folded(f"a{character}b") == "ab":
            assert "FILLER" in unicodedata.name(character), hex(code)  # of Hangul


def test_other_characters_become_their_compatible_form_or_stay():
    forms = {"full-width": 0, "half-width": 0, "ligature": 0, "mathematical": 0, "form": 0}
    characters, others = all_characters()
    assert {*folded(others)} <= {*others}  # a few are left out
    for character in characters:
        found = folded(character)
        if found and found != character:
            assert found == unicodedata.normalize("NFKC", character)
            name = unicodedata.name(character).lower().replace("fullwidth", "full-width")
            name = name.replace("halfwidth", "half-width").replace("presentation", "form")
            for form in forms:
                forms[form] += form in name
    assert all(forms.values())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A man ri\u00addes a bike.\ufeff", "A man rides a bike."),
        ("\u202aa\u202c \u2067b\u2069 \u200ec", "a b c"),
        ("Ａ ｍａｎ １２ ﬁreﬁghter 𝐁𝐨𝐥𝐝", "A man 12 firefighter Bold"),
        ("ｶﾞｷﾞ", "ガギ"),
        ("ﺍﻟﺴﻼﻡ", "السلام"),
        ("a\x00b\x07c\x1b", "abc"),
        ("bi\ufe0fke", "bike"),
    ],
)
def test_texts_that_look_alike_are_alike(text, expected):
    assert folded(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("می\u200cخواهم", "ශ්\u200dරී", "👨\u200d👩\u200d👧"),  # joiners
        *("❤\ufe0f", "1\ufe0f\u20e3", "🏴\U000e0067\U000e0062\U000e007f"),
        *("你好，世界！（甲）", "m²", "½", "…", "™", "1.º", "น้ำ", "ﷺ", "\tx  y\u00a0z"),
    ],
)
def test_what_has_a_meaning_of_its_own_stays(text):
    assert folded(text) == text
