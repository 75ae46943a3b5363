"""Samples of the lines of corpora: where they are from, their encoding, names of columns."""

import gzip
import json
from itertools import pairwise
from pathlib import Path

import pytest

from nmt_cli.corpus.text.samples import (
    LONGEST,
    NUM_LINES,
    START,
    eight_bit_encoding,
    sample_of,
)
from nmt_cli.recipe.sections.corpora import ParallelFiles
from tests.plain_sentences import sentences

LANGUAGES = ("en", "de")
RUSSIAN = ["Старый учитель купил новую машину.", "Моя сестра ищет стакан воды."] * 20
POLISH = ["Stary nauczyciel kupił właśnie żółty samochód.", "Moja siostra pije świeżą wodę."] * 20
CZECH = ["Starý učitel si koupil nové žluté auto.", "Moje sestra šla včera domů."] * 20
GREEK = ["Άκου τον παλιό δάσκαλο που αγόρασε αυτοκίνητο.", "Άλλη μέρα θα έρθει η αδελφή μου."] * 20
JAPANESE = ["私の先生は新しい車を買いました。", "今日は天気がとてもいいです。"] * 20
CURLY = [
    "The teacher\u2019s house is \u201cvery old\u201d.",
    "It isn\u2019t what you wanted to buy.",
] * 20


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(name, lines, encoding="utf-8"):
    data = "".join(f"{line}\n" for line in lines).encode(encoding)
    Path(name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)


def sampled(**files):
    return sample_of(ParallelFiles(**files), LANGUAGES)


def test_a_sample_is_from_all_of_a_large_file_but_the_begin_of_a_packed_one():
    lines = [f"{number:07} of many lines" for number in range(200_000)]
    write("a.en", lines)
    write("a.de.gz", lines)
    sides = sampled(source="a.en", target="a.de.gz").sides
    assert [len(side) for side in sides] == [NUM_LINES, NUM_LINES]
    assert all(set(side) <= set(lines) for side in sides)  # none is cut
    spread, first = ([int(line.split()[0]) for line in side] for side in sides)
    assert (spread[0], first[0]) == (0, 0)
    assert spread == sorted(set(spread))
    gaps = [after - before for before, after in pairwise(spread)]
    assert max(spread) > 180_000
    assert max(gaps) < 25_000
    assert START / 30 < max(first) < START / len(lines[0])


def test_no_line_of_a_sample_is_cut_but_at_its_longest():
    lines = [f"{number:06} ".ljust(5 * LONGEST // 2, "x") for number in range(2000)]
    write("a.en", lines)
    for side in sampled(source="a.en", target="a.en").sides:
        assert set(side) <= {line[:LONGEST] for line in lines}


def test_small_files_are_taken_whole_without_blank_lines():
    write("a.en", ["\ufeffone", "", "two\r", " ", "three"])
    Path("a.de").write_text("eins\nzwei")  # no line feed at the end
    assert sampled(source="a.en", target="a.de").sides == (
        ["one", "two", "three"],
        ["eins", "zwei"],
    )
    assert sampled(source="a.en", target="none.de") is None


def test_both_sides_of_rows():
    pairs = list(zip(sentences("en"), sentences("de"), strict=True))
    write("a.tsv", [f"{number}\t{de}\t{en}" for number, (en, de) in enumerate(pairs)] + ["damaged"])
    rows = [json.dumps({"en": en, "de": de}) for en, de in pairs]
    write("a.jsonl.gz", [*rows, "damaged"])
    tsv = sampled(tsv="a.tsv", columns=("3", "2"))
    for found in (tsv, sampled(jsonl="a.jsonl.gz", columns=("en", "de"))):
        assert found.sides == (sentences("en"), sentences("de"))
        assert found.header is None


@pytest.mark.parametrize(
    ("cells", "names"),
    [
        ("en\tde", ("en", "de")),
        ("DE\ten_GB", ("en_GB", "DE")),
        ("German\tEnglish", ("English", "German")),
        ("source\ttarget", ("source", "target")),
        ("tgt\tsrc", ("src", "tgt")),
        ("en\tfr", None),
        ("English\tEnglisch", None),
        ("text\tText", None),
    ],
)
def test_names_of_columns_that_are_read_as_a_pair(cells, names):
    pairs = zip(sentences("en"), sentences("de"), strict=True)
    write("a.tsv", [cells, *map("\t".join, pairs)])
    assert sampled(tsv="a.tsv").header == names
    if names:
        assert sampled(tsv="a.tsv", columns=names).header is None
        assert sampled(tsv="a.tsv", columns=names).sides[0][0] in sentences("en") + sentences("de")


@pytest.mark.parametrize(
    ("lines", "language", "encoding"),
    [
        (sentences("de"), "de", "ISO-8859-1"),
        (CURLY, "en", "WINDOWS-1252"),
        ([f"{line} It was 20 €." for line in sentences("en")], "en", "WINDOWS-1252"),
        (RUSSIAN, "ru", "KOI8-R"),
        (RUSSIAN, "ru", "WINDOWS-1251"),
        (POLISH, "pl", "ISO-8859-2"),
        (POLISH, "pl", "WINDOWS-1250"),
        (CZECH, "cs", "ISO-8859-2"),
        (CZECH, "cs-CZ", "WINDOWS-1250"),
        (GREEK, "el", "ISO-8859-7"),
        (GREEK, "el", "WINDOWS-1253"),
        (JAPANESE, "ja", "EUC-JP"),
        (JAPANESE, "ja", "CP932"),
    ],
)
def test_the_encoding_of_8_bits_is_found(lines, language, encoding):
    encoded = [line.encode(encoding) for line in lines]
    assert eight_bit_encoding(encoded, [language]) == encoding
    assert eight_bit_encoding(encoded, ["en", language]) == encoding
    assert eight_bit_encoding([line.encode() for line in lines], [language]) is None


def test_damaged_utf_8_is_in_no_other_encoding():
    lines = [line.encode() for line in sentences("de")]
    assert (
        eight_bit_encoding([line[:-2] + b"\xc3" for line in lines[:5]] + lines[5:], ["de"]) is None
    )
    assert eight_bit_encoding([b"\xff\x81" * 20] * 20, ["de"]) is None
    assert eight_bit_encoding([line.encode("KOI8-R") for line in RUSSIAN], ["ckb"]) is None


def test_the_text_of_a_sample_is_decoded():
    write("a.en", sentences("en"))
    write("a.de.gz", sentences("de"), "latin-1")
    found = sampled(source="a.en", target="a.de.gz")
    assert found.sides == (sentences("en"), sentences("de"))
    assert {str(path): name for path, name in found.encodings.items()} == {"a.de.gz": "ISO-8859-1"}
