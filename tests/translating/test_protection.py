"""What patterns of protected text match, and which patterns are refused."""

import re

import pytest

from nmt_cli.translating.interface.protection import (
    COMMON,
    COMMON_PATTERNS,
    PLACEHOLDERS,
    Protection,
)


def found(text, *patterns):
    return [text[match.begin : match.end] for match in Protection(patterns).found_in(text)]


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        (
            "See https://a.org/wiki/A_(b), (http://x.y/z?a=1&b=2), www.a.de! Not www. nor http://.",
            ["https://a.org/wiki/A_(b)", "http://x.y/z?a=1&b=2", "www.a.de"],
        ),
        ("Mail a.b+c@d-e.co.uk, or @me.", ["a.b+c@d-e.co.uk"]),
        ("请看 https://a.b/c。谢谢 https://مثال.com/x", ["https://a.b/c", "https://مثال.com/x"]),
        ("请看https://a.b/c。", ["https://a.b/c"]),
        ("Http://a.b is down. Www.a.de is up.", ["Http://a.b", "Www.a.de"]),
        (
            "Hello {name}, {{ user.name }} ${x} {} {0:.2f} { no } {a{b}}",
            ["{name}", "{{ user.name }}", "${x}", "{}", "{0:.2f}", "{b}"],
        ),
        ("%s %d%% %1$s%2$s %(n)s %-5.2f %@", ["%s", "%d", "%1$s", "%2$s", "%(n)s", "%-5.2f", "%@"]),
        ("100% sure, 100 %ig, 100%ig, 50%off", []),
        ("3 %s of 5%d, %dpx %%s", ["%s", "%d", "%d"]),
        (
            "v2, v1.2.3-beta.1, 1.2.3, 10.0.0.1 and 2.11.0+cpu.",
            ["v2", "v1.2.3-beta.1", "1.2.3", "10.0.0.1", "2.11.0+cpu"],
        ),
        ("24.12.2026, 1.000.000, 1.5, x1.2.3 and 1.2", []),
        ("😀👨‍👩‍👧x👍🏽 🇩🇪🇫🇷 1️⃣ ❤️ ☆", ["😀", "👨‍👩‍👧", "👍🏽", "🇩🇪", "🇫🇷", "1️⃣", "❤️", "☆"]),
        ("https://a.b/{id}", ["https://a.b/{id}"]),  # two matches that overlap are one
    ],
)
def test_common_text(text, spans):
    assert found(text, COMMON) == spans


def test_placeholders_are_some_of_what_is_common():
    text = "See https://a.org, {name}, ${x}, {{ y }}, %s of %(n)d, v1.2.3 and 😀."
    spans = ["{name}", "${x}", "{{ y }}", "%s", "%(n)d"]
    assert found(text, PLACEHOLDERS) == spans
    assert found(text, PLACEHOLDERS, COMMON) == ["https://a.org", *spans, "v1.2.3", "😀"]


def test_matches_of_several_patterns_are_joined_where_they_overlap():
    assert found("abcde abc", "abc", "cde") == ["abcde", "abc"]
    assert found("a1 b", r"\d|\s") == ["1"]  # white space cannot be copied
    kinds = [each.kind for each in Protection([r"(?P<num>\d+)", "b+"]).found_in("1 bb")]
    assert kinds == ["num", ""]


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "'(' is no regular expression: missing ), unterminated subpattern at character 1"),
        ("x*", "'x*' matches the empty string, which cannot be copied"),
        (r"\b", r"'\\b' matches the empty string, which cannot be copied"),
        ("(?=a)", "'(?=a)' matches the empty string, which cannot be copied"),
        ("", "'' matches the empty string, which cannot be copied"),
        ("(" * 999, f"'{'(' * 60}...' is "),
    ],
)
def test_patterns_that_are_refused(pattern, reason):
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}") as raised:
        Protection([pattern])
    assert len(str(raised.value)) < 200


def test_a_single_text_is_no_list_of_patterns():
    with pytest.raises(ValueError, match="a list of patterns is needed in place of 'common'"):
        Protection("common")


@pytest.mark.parametrize("kind", COMMON_PATTERNS)
def test_common_patterns_need_time_that_grows_with_the_text(kind):
    """Each text repeats what begins a match; with time by its square this would take minutes."""
    starts = [
        "a",
        "a.",
        "0",
        "https://(",
        "https://(a)",
        "1.",
        "{",
        "%",
        "😀",
        "www.",
        "a@b.",
        "v1.",
    ]
    protection = Protection([COMMON_PATTERNS[kind]])
    for start in starts:
        protection.found_in(start * 20_000)
    protection.found_in("%" + "0" * 100_000)
