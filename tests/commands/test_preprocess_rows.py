"""Corpora that are tables or JSON objects are prepared like text files with the same pairs."""

import gzip
import json
import lzma
from pathlib import Path

import pytest

from nmt_cli.commands import recipes
from nmt_cli.corpus.prepared import changed_text
from nmt_cli.files.atomic_files import read_manifest
from nmt_cli.messages.errors import RecipeError, UserError

TEXT = "data.train=[{source: data/a.en, target: data/a.de}]"
TABLE = "data.train=[{tsv: data/a.tsv.xz, columns: [en, de]}]"
OBJECTS = "data.train=[{jsonl: data/a.jsonl.gz, columns: [translation.en, translation.de]}]"
MEMORY = "data.train=[{memory: data/a.tmx}]"
TU = """<tu><tuv xml:lang="de-DE"><seg>{1}</seg></tuv><tuv xml:lang="en"><seg>{0}</seg></tuv></tu>
"""
VALIDATION = "data.validation={tsv: data/val.tsv}"


@pytest.fixture
def rows(corpus):
    """The same pairs as rows; one of them is blank, and one is too long."""
    pairs = [*zip(corpus.sentences(80, 0), corpus.sentences(80, 1), strict=True)]
    pairs[20:22] = [("", ""), ("long " * 1100, "lang " * 1100)]
    corpus.write("data/a.en", [source for source, _ in pairs])
    corpus.write("data/a.de", [target for _, target in pairs])
    table = "".join(f"{target}\t7\t{source}\n" for source, target in pairs)
    Path("data/a.tsv.xz").write_bytes(lzma.compress(f"de\tid\ten\n{table}".encode()))
    objects = [
        json.dumps({"translation": {"en": source, "de": target}}) for source, target in pairs
    ]
    Path("data/a.jsonl.gz").write_bytes(gzip.compress("\n".join(objects).encode()))
    units = "".join(TU.format(*pair) for pair in pairs)
    Path("data/a.tmx").write_text(f"<tmx><body>{units}</body></tmx>", encoding="utf-16")
    sides = (Path(f"data/val.{code}").read_text().splitlines() for code in ("en", "de"))
    corpus.write("data/val.tsv", list(map("\t".join, zip(*sides, strict=True))))
    return corpus


def without_names(hashes):
    return {
        name: each for name, each in hashes.items() if name not in ("manifest.json", "recipe.yaml")
    }


@pytest.mark.parametrize("train", [TABLE, OBJECTS, MEMORY])
@pytest.mark.parametrize("workers", [1, 2])
def test_rows_give_the_same_bytes_as_text_files(rows, train, workers):
    expected = without_names(rows.prepare(TEXT))
    found = without_names(rows.prepare(train, VALIDATION, force=True, workers=workers))
    assert found == expected


def test_the_manifest_counts_empty_and_equal_pairs_of_a_memory(rows):
    units = [TU.format("one", "<hi>eins</hi>"), TU.format("", "leer"), TU.format("two", "zwei")]
    Path("data/b.tmx").write_text(f"<tmx><body>{''.join(units * 2)}</body></tmx>")
    both = 'data.train=[{memory: data/a.tmx}, {memory: data/b.tmx, inline_tags: "<ph>"}]'
    rows.prepare(both, VALIDATION)
    first, second = read_manifest(rows.output)["train"]
    assert second["memory"] == "data/b.tmx"
    assert (second["pairs_read"], second["pairs_kept"]) == (6, 4)
    assert second["dropped"]["empty"] == {"count": 2, "first_lines": [2, 5]}
    assert second["found"]["duplicates"] == 2
    assert first["found"]["duplicates"] >= 0
    tokenizer = rows.opened(both, VALIDATION).tokenizer
    assert tokenizer.pieces(tokenizer.encode("a<ph>b", "source"), "source").count("<ph>") == 1
    rows.prepare(
        both,
        TEXT.replace("data.train", "data.test").replace("[", "").replace("]", ""),
        "data.filters.remove_duplicates=true",
        force=True,
    )
    removed = read_manifest(rows.output)["train"][1]
    assert (removed["pairs_kept"], removed["dropped"]["duplicate"]["count"]) == (2, 2)


def test_the_manifest_names_the_file_and_the_lines_in_it(rows):
    rows.prepare(TABLE, VALIDATION)
    manifest = read_manifest(rows.output)
    (train,), validation = manifest["train"], manifest["validation"]
    assert (train["tsv"], validation["tsv"]) == ("data/a.tsv.xz", "data/val.tsv")
    assert "source" not in train
    assert train["dropped"]["empty"] == {"count": 1, "first_lines": [22]}  # behind the header
    assert train["dropped"]["too_long"] == {"count": 1, "first_lines": [23]}
    assert changed_text(rows.output, manifest) == []
    with Path("data/val.tsv").open("a") as stream:
        stream.write("one\tmore\n")
    assert changed_text(rows.output, manifest) == [Path("data/val.tsv")]


def test_a_prepared_text_is_that_of_its_columns(rows):
    rows.prepare("data.train=[{tsv: data/val.tsv}]")
    assert rows.opened("data.train=[{tsv: data/val.tsv}]")
    with pytest.raises(UserError, match=r"was made with train\.0\.columns null, the recipe says"):
        rows.opened("data.train=[{tsv: data/val.tsv, columns: [2, 1]}]")
    with pytest.raises(UserError, match=r"was made with .*train\.0\.tsv data/val\.tsv"):
        rows.opened(TEXT)


def test_a_wrong_row_is_one_error_of_preprocess(rows, capsys):
    content = Path("data/val.tsv").read_text().splitlines()
    rows.write("data/val.tsv", [*content[:-1], "no tab"])
    for overrides in ([TEXT, VALIDATION], ["data.train=[{tsv: data/val.tsv}]"]):
        with pytest.raises(UserError, match=r"^data/val\.tsv:20: the line has 1 column"):
            rows.prepare(*overrides, workers=2)
    assert capsys.readouterr().err == ""


def test_check_reads_the_first_rows(rows):
    recipes.check("./small.yaml", [TABLE, VALIDATION])
    wrong = "data.validation={tsv: data/val.tsv, columns: [en, de]}"
    problem = r"^small\.yaml: data\.validation\.tsv: data/val\.tsv:1: no column is named 'en'"
    with pytest.raises(RecipeError, match=problem):
        recipes.check("./small.yaml", [TABLE, wrong])
    recipes.check("./small.yaml", [MEMORY, VALIDATION])
    wrong = "data.validation={memory: data/a.tmx, columns: [en, fr]}"
    problem = (
        r"data\.validation\.memory: data/a\.tmx has no pair of en and fr: its languages are de"
    )
    with pytest.raises(RecipeError, match=problem):
        recipes.check("./small.yaml", [TABLE, wrong])
    for key in ("columns: [en, de]", "inline_tags: <ph>"):
        with pytest.raises(RecipeError, match=f"{key.split(':')[0]}: needs .*memory, whose"):
            recipes.check("./small.yaml", [f"data.validation={{source: a, target: b, {key}}}"])
    with pytest.raises(RecipeError, match=r"data\.train\.0\.jsonl: data/x does not exist"):
        recipes.check("./small.yaml", ["data.train=[{jsonl: data/x}]"])
