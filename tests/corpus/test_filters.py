"""Each filter against a statement of the same rule for one pair, character by character."""

import random
import unicodedata
from collections import Counter

import numpy as np
import pytest

from nmt_cli.corpus.text.characters import LANGUAGES, SUBTAGS, scripts_of
from nmt_cli.corpus.text.filters import LOOKED_AT, TEXT_FILTERS, TextFilters, urls_in
from nmt_cli.messages.errors import UserError
from nmt_cli.recipe.sections.data import DataConfig

# Letters of three scripts, marks, digits of three scripts, symbols, controls, text from the right.
CHARACTERS = "aZéßѢжΩλ\u0301ªµ059٣٠७!?،€😀\u00a0 \t\x00\x85\u200b\u202e\ufffdאب中ーｱＡ"
WORDS = [
    "one",
    "two",
    "three",
    "größer",
    "мир",
    "a",
    "x" * 30,
    "42",
    "1,5",
    "٣",
    "!",
    "中文字",
    "\x07",
]


def data_config(source="en", target="ru", **filters):
    files = {"source": "a", "target": "b"}
    languages = {"source_language": source, "target_language": target}
    return DataConfig.model_validate(
        {**languages, "train": [files], "validation": files, "filters": filters}
    )


def dropped(pairs, source="en", target="ru", **filters):
    """Return which pairs the filters drop."""
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
    broken = TextFilters(data_config(source, target, **filters)).first_broken(
        sources, targets, np.ones(len(pairs), dtype=bool)
    )
    return [number >= 0 for number in broken.tolist()]


def hostile_pairs(seed):
    generator = random.Random(seed)
    texts = ["", *("".join(generator.choices(CHARACTERS, k=k % 23)) for k in range(300))]
    texts += [" ".join(generator.choices(WORDS, k=k % 12)) for k in range(300)]
    texts += ["a b c " * LOOKED_AT, "z" * 2 * LOOKED_AT]
    return [(source, generator.choice([source, *generator.sample(texts, 2)])) for source in texts]


def shares(text, script):
    """The share of letters, and of letters of the script of block ``script``."""
    text = text[:LOOKED_AT]
    categories = [unicodedata.category(character)[0] for character in text]
    visible = [c for c, category in zip(text, categories, strict=True) if category not in "ZC"]
    letters = [c for c in visible if unicodedata.category(c)[0] in "LM"]
    of_any_script = [c for c in letters if c not in "ªµ\u0301"]
    own = [c for c in of_any_script if any(first <= c <= last for first, last in script)]
    return (
        len(letters) / len(visible) if visible else 0.0,
        len(own) / len(of_any_script) if of_any_script else 1.0,
    )


LATIN, CYRILLIC = [("A", "ɏ"), ("Ａ", "ｚ")], [("Ѐ", "ӿ")]


@pytest.mark.parametrize("least", [0.2, 0.5, 1])
def test_letters_and_scripts_are_counted_by_character(least):
    pairs = hostile_pairs(1)
    found = [(shares(s, LATIN), shares(t, CYRILLIC)) for s, t in pairs]
    of_letters = [min(source[0], target[0]) < least for source, target in found]
    of_scripts = [min(source[1], target[1]) < least for source, target in found]
    assert dropped(pairs, min_letters=least) == of_letters
    assert dropped(pairs, min_script=least) == of_scripts
    assert 20 < sum(of_letters) < len(pairs) - 20
    assert 20 < sum(of_scripts) < len(pairs) - 20


@pytest.mark.parametrize("least", [0.4, 1])
def test_digits_on_both_sides(least):
    pairs, expected = hostile_pairs(2), []
    for pair in pairs:
        bags = [
            Counter(int(c) for c in text[:LOOKED_AT] if c.isdecimal() and int(c)) for text in pair
        ]
        common, total = (bags[0] & bags[1]).total(), bags[0].total() + bags[1].total()
        expected.append(2 * common < least * total)
    assert dropped(pairs, min_equal_digits=least) == expected
    assert 20 < sum(expected) < len(pairs) - 20


def test_how_numbers_are_written_does_not_matter():
    equal = [
        ("1,000.5 on 12/31/2020", "1.000,5 am 31.12.2020"),
        ("10 million", "10 000 000"),
        ("no", "no"),
        ("٣٤", "34"),
    ]
    assert dropped(equal, min_equal_digits=1) == [False] * 4
    assert dropped([("3", "4"), ("3", ""), ("15:30", "5:30")], min_equal_digits=0.6) == [
        True,
        True,
        False,
    ]


def test_lengths_in_words_and_characters():
    pairs = hostile_pairs(3)
    words = [[len(text.split()) for text in pair] for pair in pairs]
    characters = [[len(text) for text in pair] for pair in pairs]
    longest = [max((len(w) for text in pair for w in text.split()), default=0) for pair in pairs]
    expected = {
        ("min_words", 3): [min(pair) < 3 for pair in words],
        ("max_words", 9): [max(pair) > 9 for pair in words],
        ("max_words_ratio", 2.5): [max(pair) > 2.5 * min(pair) for pair in words],
        ("min_characters", 8): [min(pair) < 8 for pair in characters],
        ("max_characters", 40): [max(pair) > 40 for pair in characters],
        ("max_characters_ratio", 1.5): [max(pair) > 1.5 * min(pair) for pair in characters],
        ("max_word_length", 12): [number > 12 for number in longest],
        ("remove_copies", True): [source.strip() == target.strip() for source, target in pairs],
    }
    for (name, limit), flags in expected.items():
        assert dropped(pairs, **{name: limit}) == flags, name
        assert 20 < sum(flags) < len(pairs) - 20, name


def share_repeated(units, size):
    grams = [units[first : first + size] for first in range(len(units) - size + 1)]
    return sum(gram in grams[:place] for place, gram in enumerate(grams)) / max(1, len(grams))


def test_repeated_ngrams():
    generator = random.Random(4)
    pairs = [
        (" ".join(generator.choices("ab", k=k % 15)), "".join(generator.choices("一二 ", k=k % 40)))
        for k in range(200)
    ]
    expected = [
        share_repeated(source.split(), 3) > 0.4
        or share_repeated(list(target.replace(" ", "")), 6) > 0.4
        for source, target in pairs
    ]
    assert dropped(pairs, "en", "zh-Hans", max_repeated_ngrams=0.4) == expected
    assert 20 < sum(expected) < 180


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see https://a.b/c?d=e, or (www.x.org).", ["https://a.b/c?d=e", "www.x.org"]),
        ("请看http://x.cn/一和ftp://y.z/1。", ["http://x.cn/", "ftp://y.z/1"]),
        ("mail a.b+c@d-e.co.uk!", ["a.b+c@d-e.co.uk"]),
        ("an @ sign, a@b, 3@4. and a:// b", []),
        ("Https://A.b/C, FTP://d.e, Www.x.org", ["Https://A.b/C", "FTP://d.e", "Www.x.org"]),
        ("wwwhat? http and www", []),
        ("@" * 5000 + "a" * 5000 + "." * 5000, []),
    ],
)
def test_urls_and_addresses_are_found(text, found):
    assert urls_in(text) == found


@pytest.mark.parametrize(
    ("source", "target", "differ"),
    [
        ("Http://A.org/bC", "http://a.ORG/bC", False),
        ("HTTPS://a.org?B=c", "https://a.org?B=c", False),
        ("Www.a.org", "www.a.org", False),
        ("Mail Me@A.org", "mail me@a.org", False),
        ("http://a.org/bC", "http://a.org/bc", True),
        ("https://a.org?B=c", "https://a.org?b=c", True),
        ("http://a.org", "https://a.org", True),
    ],
)
def test_the_case_of_scheme_and_host_makes_no_url_differ(source, target, differ):
    assert dropped([(source, target)], remove_different_urls=True) == [differ]


def test_urls_that_differ_and_their_share():
    url = "http://a.org/bc"  # 15 characters
    pairs = [(f"see {url}", f"siehe {url}."), (url, "nichts"), ("none", "keine"), (url, url)]
    pairs += [(f"{url} www.b.org", f"www.b.org {url}"), (f"{url} {url}", url)]
    assert dropped(pairs, remove_different_urls=True) == [False, True, False, False, False, True]
    assert dropped(pairs, max_urls=0.8) == [False, True, False, True, True, True]
    assert dropped(pairs, max_urls=15 / 19) == [False, True, False, True, True, True]
    assert dropped(pairs, max_urls=15 / 23) == [True, True, False, True, True, True]


ENGLISH = "The committee will publish its report at the end of the month."
GERMAN = "Der Ausschuss wird seinen Bericht am Ende des Monats veröffentlichen."
NORWEGIAN = "Utvalget vil offentliggjøre sin rapport ved slutten av måneden."


def test_the_language_of_each_side():
    pairs = [(ENGLISH, GERMAN), (GERMAN, ENGLISH), (ENGLISH, ENGLISH), (GERMAN, GERMAN)]
    assert dropped(pairs, "en-GB", "de", min_language=0.5) == [False, True, True, True]
    assert dropped([(NORWEGIAN, GERMAN), pairs[0]], "nb", "de", min_language=0.5) == [False, True]


def test_a_language_that_is_not_known_is_named():
    with pytest.raises(UserError, match=r"^data\.filters\.min_language: .* language tlh-Latn; "):
        dropped([], "tlh-Latn", "de", min_language=0.5)
    with pytest.raises(UserError, match=r"min_script: the script of language tlh .* tlh-Latn, or"):
        dropped([], "de", "tlh", min_script=0.5)
    assert dropped([("a", "b")], "tlh-Latn", "de", min_script=0.5) == [False]


def test_a_pair_is_counted_for_the_first_filter_that_it_breaks():
    limits = {
        "min_letters": 0.9,
        "remove_copies": True,
        "max_words": 3,
        "min_characters": 2,
        "min_language": 0.9,
        "max_repeated_ngrams": 0.1,
    }
    pairs = [("1", "1"), ("2 2 2 2", "2 2 2 2"), ("22", "22"), ("12", "34"), ("a b", "c d")]
    filters = TextFilters(data_config("en", "de", **limits))
    sources, targets = zip(*pairs, strict=True)
    is_left = np.array([True, True, True, True, True])
    first = filters.first_broken(sources, targets, is_left).tolist()
    assert [TEXT_FILTERS[number] for number in first] == [
        "min_characters",
        "max_words",
        "remove_copies",
        "min_letters",
        "min_language",
    ]
    is_left[[1, 4]] = False
    assert np.flatnonzero(filters.first_broken(sources, targets, is_left) < 0).tolist() == [1, 4]


def test_scripts_of_language_codes():
    assert scripts_of("sr") == {"CYRILLIC"} | scripts_of("sr-Latn")
    assert scripts_of("zh_Hant") >= {"CJK"}
    assert scripts_of("ja") >= {"CJK", "HIRAGANA", "KATAKANA"}
    assert scripts_of("DE-de") == {"LATIN"}
    assert all(scripts_of(f"xx-{subtag}") for subtag in SUBTAGS)
    names = {unicodedata.name(chr(code), " ").split(" ")[0] for code in range(0x20000)}
    assert set(LANGUAGES) <= names
