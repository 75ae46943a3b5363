"""``nmt-cli data split``: what it holds out, and that nothing of it stays in the training text."""

import csv
import gzip
import json
import os
import random
import shutil
import subprocess
import tarfile
import zipfile
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.files.atomic_files import read_manifest

PARTS = ("train", "validation", "test")


@pytest.fixture(autouse=True)
def work_in_tmp_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def split(*arguments, status=0):
    result = CliRunner().invoke(cli.main, ["data", "split", *map(str, arguments)])
    assert result.exit_code == status, result.stderr
    return result.stderr


def pairs_with_repetitions():
    """Return pairs of which some share a source, a target, or one of them in another form."""
    draw = random.Random(5)
    forms = ("{}", "{}!", "{} ...", "  {}", "({})")
    return [
        (
            draw.choice(forms).format(f"wort{'a' * draw.randint(1, 150)}"),
            draw.choice(forms).format(f"WORD{'b' * draw.randint(1, 300)}"),
        )
        for _ in range(500)
    ]


def plain(text):
    return "".join(letter for letter in text.lower() if letter.isalpha())


def read(folder, ending):
    return {
        part: (folder / f"{part}.{ending}").read_bytes().decode().split("\n")[:-1] for part in PARTS
    }


def test_no_sentence_of_held_out_text_stays_in_the_training_text():
    pairs = pairs_with_repetitions()
    Path("a.de").write_text("".join(f"{source}\n" for source, _ in pairs))
    Path("a.en").write_text("".join(f"{target}\n" for _, target in pairs))
    stderr = split("a.de", "a.en", "--validation", 20, "--test", 30)
    sources, targets = read(Path("a-split"), "de"), read(Path("a-split"), "en")
    assert [len(sources[part]) for part in ("validation", "test")] == [20, 30]
    for side in (sources, targets):
        letters = {part: set(map(plain, lines)) for part, lines in side.items()}
        assert not letters["train"] & (letters["validation"] | letters["test"])
        assert not letters["validation"] & letters["test"]
        for part in ("validation", "test"):
            assert len(letters[part]) == len(side[part])
    written = Counter[tuple[str, str]]()
    for part in PARTS:
        written.update(zip(sources[part], targets[part], strict=True))
    left_out = Counter(pairs) - written
    assert written <= Counter(pairs)
    held = [
        {plain(line) for part in PARTS[1:] for line in side[part]} for side in (sources, targets)
    ]
    assert left_out
    assert all(plain(source) in held[0] or plain(target) in held[1] for source, target in left_out)
    num_left_out = left_out.total()
    assert f"Left out {num_left_out} pairs with a sentence" in stderr
    assert (
        f"{500 - 50 - num_left_out} pairs for training, 20 for validation, 30 for test." in stderr
    )


def test_training_text_keeps_the_order_and_other_seeds_hold_out_others():
    Path("a.de").write_text("".join(f"satz {'x' * number}\n" for number in range(1, 101)))
    Path("a.en").write_text("".join(f"line {'y' * number}\n" for number in range(1, 101)))
    seen = []
    for seed in (1, 1, 2):
        split("a.de", "a.en", "--validation=5", "--test=5", "--seed", seed, "--force")
        seen.append(read(Path("a-split"), "de"))
    assert seen[0] == seen[1] != seen[2]
    for part in PARTS:
        assert seen[0][part] == sorted(seen[0][part], key=len)


def test_bytes_stay_as_they_are():
    lines = [b"\xff bad \r", b"e\xcc\x81 nfd", "\u2028 a b".encode(), b"", b"last without an end"]
    others = [f"letter {'z' * number}".encode() for number in range(1, 20)]
    Path("a.de").write_bytes(b"\xef\xbb\xbf" + b"\n".join([*others, *lines]))
    Path("a.en").write_bytes(b"\n".join([*others, *lines]) + b"\n")
    split("a.de", "a.en", "--validation", 3, "--test", 3)
    for ending in ("de", "en"):
        found = b"".join(Path(f"a-split/{part}.{ending}").read_bytes() for part in PARTS)
        assert sorted(found.split(b"\n")[:-1]) == sorted([*others, *lines])


def test_names_are_the_endings_of_the_files(tmp_path):
    text = "".join(f"{'ab' * number}\n" for number in range(1, 20))
    for folder in ("one", "two"):
        Path(folder).mkdir()
        Path(folder, "text.txt").write_text(text)
    Path("en.txt").write_text(text)
    Path("c.de.gz").write_bytes(gzip.compress(text.encode()))
    limits = ("--validation", 2, "--test", 2)
    for given, names in (
        (("c.de.gz", "en.txt"), ("de", "txt")),
        (("one/text.txt", "en.txt"), ("text.txt", "en.txt")),
        (("one/text.txt", "two/text.txt"), ("text.txt.source", "text.txt.target")),
    ):
        split(*given, *limits, "--output", "out", "--force")
        expected = {f"{part}.{name}" for part in PARTS for name in names}
        assert {path.name for path in Path("out").iterdir()} == {"manifest.json", *expected}


def test_rows_stay_whole_and_each_part_has_the_header():
    rows = [f"{number}\t{'wort ' * number}\t{'word ' * number}" for number in range(1, 41)]
    Path("a.tsv").write_text("\n".join(["id\tde\ten", *rows]) + "\n")
    split("a.tsv", "--columns", "de,en", "--validation", 4, "--test", 4)
    parts = read(Path("a-split"), "tsv")
    assert {lines[0] for lines in parts.values()} == {"id\tde\ten"}
    assert sorted(row for lines in parts.values() for row in lines[1:]) == sorted(rows)

    objects = [json.dumps({"translation": {"de": "a" * n, "en": "b" * n}}) for n in range(1, 31)]
    Path("a.jsonl").write_text("\n".join(objects))
    columns = ("--columns", "translation.de,translation.en")
    split("a.jsonl", *columns, "--validation", 4, "--test", 4, "--output", "json")
    parts = read(Path("json"), "jsonl")
    assert sorted(row for lines in parts.values() for row in lines) == sorted(objects)


def test_a_memory_becomes_tables():
    units = "".join(
        f'<tu><tuv xml:lang="de"><seg>{"ä" * n}</seg></tuv>'
        f'<tuv xml:lang="en-GB"><seg>{"a" * n}</seg></tuv></tu>'
        for n in range(1, 21)
    )
    Path("a.tmx").write_text(f'<tmx version="1.4"><header/><body>{units}</body></tmx>')
    assert (
        "a.tmx needs the languages of source and target (it has de and en-GB), such as --columns "
        "de,en-GB"
    ) in split("a.tmx", status=2)
    Path("a.po").write_text('msgid ""\nmsgstr "Language: nb\\n"\n\nmsgid "a"\nmsgstr "b"\n')
    assert "(it has nb), such as --columns en,nb" in split("a.po", status=2)
    split("a.tmx", "--columns", "de,en", "--validation", 2, "--test", 2)
    rows = [row for lines in read(Path("a-split"), "tsv").values() for row in lines]
    assert sorted(rows) == sorted(f"{'ä' * n}\t{'a' * n}" for n in range(1, 21))


def test_files_of_translators_are_memories_by_all_their_endings():
    units = "".join(
        f'<trans-unit id="{n}"><source>{"ä" * n}</source><target>{"a" * n}</target></trans-unit>'
        for n in range(1, 21)
    )
    languages = 'source-language="de" target-language="en"'
    text = f'<xliff version="1.2"><file {languages}><body>{units}</body></file></xliff>'
    for name in ("a.xliff", "a.SDLXLIFF", "a.mqxliff.gz"):
        data = text.encode()
        Path(name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        split(name, "--columns", "de,en", "--validation", 2, "--test", 2, "--force")
        rows = [row for lines in read(Path("a-split"), "tsv").values() for row in lines]
        assert sorted(rows) == sorted(f"{'ä' * n}\t{'a' * n}" for n in range(1, 21))


def test_a_csv_becomes_tables():
    cells = [(f'a "{"x" * n}", b', f"line one\nand\ttwo {'y' * n}") for n in range(1, 21)]
    for delimiter, encoding in ((",", "utf-8"), (";", "utf-8-sig")):
        with Path("a.csv").open("w", encoding=encoding, newline="") as stream:
            writer = csv.writer(stream, delimiter=delimiter)
            writer.writerows([("de", "id", "en"), *((s, "7", t) for s, t in cells)])
        split("a.csv", "--columns", "de,en", "--validation", 2, "--test", 2, "--force")
        parts = read(Path("a-split"), "tsv")
        assert {lines[0] for lines in parts.values()} == {"de\tid\ten"}
        expected = [f"{s}\t7\t{t}".replace("\nand\t", " and ") for s, t in cells]
        assert sorted(row for lines in parts.values() for row in lines[1:]) == sorted(expected)
    stderr = split("a.csv", "--force", status=1)
    assert "a.csv:1: the line has 3 columns: 'de', 'id' and 'en'; add --columns" in stderr
    Path("a.csv").write_text('a,"b\n')
    assert "a.csv:1: not CSV: unexpected end of data." in split("a.csv", "--force", status=1)


@pytest.mark.parametrize("header", ["en\tde", "English\tGerman", "source\ttarget", "en-GB\tde_AT"])
def test_a_first_row_with_names_stays_the_header_of_each_part(header):
    rows = [f"line {'a' * number}\tsatz {'b' * number}" for number in range(1, 40)]
    Path("a.tsv").write_text("\n".join([header, *rows]) + "\n")
    stderr = split("a.tsv", "--validation", 5, "--test", 6)
    parts = read(Path("a-split"), "tsv")
    assert "The first row of a.tsv names its columns." in stderr
    assert all(lines[0] == header for lines in parts.values())
    assert sorted(line for lines in parts.values() for line in lines[1:]) == sorted(rows)


@pytest.mark.parametrize("first", ["no\tno", "A dog\tEin Hund", "it is\tes ist", "\t"])
def test_another_first_row_is_a_pair(first):
    rows = [f"line {'a' * number}\tsatz {'b' * number}" for number in range(1, 40)]
    Path("a.tsv").write_text("\n".join([first, *rows]) + "\n")
    assert "names its columns" not in split("a.tsv", "--validation", 5, "--test", 6)
    parts = read(Path("a-split"), "tsv")
    assert sorted(line for lines in parts.values() for line in lines) == sorted([first, *rows])


def test_blank_sides_are_never_held_out():
    texts = [*(f"{'a' * number}" for number in range(1, 13)), *([""] * 200)]
    Path("a.de").write_text("\n".join(texts) + "\n")
    Path("a.en").write_text("\n".join(f"{text} t{'b' * n}" for n, text in enumerate(texts)) + "\n")
    split("a.de", "a.en", "--validation", 5, "--test", 6)
    sources = read(Path("a-split"), "de")
    assert all(sources["validation"] + sources["test"])
    assert len(sources["train"]) == 201


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (
            ("a.de",),
            1,
            "a.de has no second column; give the texts of both sides, or one file that holds both",
        ),
        (("a.de", "b.en"), 1, "a.de has 3 lines but b.en has 2; line n of one"),
        (("a.de", "a.en", "--test", "2"), 1, "3 pairs in a.de and a.en, 2 of them with sentences"),
        (("a.de", "a.en", "--test", "9" * 30), 1, "3 pairs in a.de and a.en, 2 of them with sente"),
        (("a.de", "./a.de"), 1, "a.de is given for both sides; give the two texts of a corpus."),
        (("a.de", "a.en", "b.en"), 2, "give the two texts of a corpus, or one file with both"),
        (("a.de", "a.en", "--columns", "1,2"), 2, "give the two texts of a corpus, or one file"),
        (("a.de", "--columns", "1"), 2, "--columns must name two, such as 1,2, but is 1."),
        (("a.de", "none"), 1, "none not found"),
        (
            ("a.de", "a.en", "--output", "a.en"),
            1,
            "a.en exists and is not a data set of data split",
        ),
    ],
)
def test_wrong_use_is_one_line_and_leaves_nothing(arguments, status, message):
    Path("a.de").write_text("eins\nzwei\nzwei\n")
    Path("a.en").write_text("one\ntwo\ntwo!\n")
    Path("b.en").write_text("one\ntwo\n")
    stderr = split("--validation", 1, *arguments, status=status)
    assert message in stderr
    assert stderr.count("\n") == 1
    assert sorted(path.name for path in Path().iterdir()) == ["a.de", "a.en", "b.en"]


def test_a_corpus_in_the_output_is_not_replaced_by_its_parts():
    for name in ("a.de", "a.en"):
        Path(name).write_text("eins\nzwei\ndrei\nvier\n")
    split("a.de", "a.en", "--validation", 1, "--test", 1, "--output", "all")
    before = {path: path.read_bytes() for path in Path("all").iterdir()}
    Path("link").symlink_to("all/train.de")
    for name in ("all/validation.de", "link"):
        given = (name, "a.en", "--validation", 1, "--test", 1, "--output", "all", "--force")
        assert f"{name} is in all, which would be replaced" in split(*given, status=1)
    assert {path: path.read_bytes() for path in Path("all").iterdir()} == before


def test_names_that_are_not_unicode():
    name = os.fsdecode(b"a\xff.d\xc3\xa9 1")
    for each in (name, "a.en"):
        Path(each).write_text("eins\nzwei\ndrei\n")
    split(name, "a.en", "--validation", 1, "--test", 1, "--output", "all")
    assert read_manifest(Path("all"))["corpus"] == [name, "a.en"]


def test_a_json_array_is_refused_with_the_command_that_makes_json_lines():
    rows = [{"source": each, "target": each.upper()} for each in "abc"]
    for indent in (None, 1):
        Path("a.json").write_text(json.dumps(rows, indent=indent))
        message = split("a.json", status=1)
        assert "a.json is a JSON array; write each of its objects into a line: jq -c" in message
        if shutil.which("jq"):
            new = message.strip().rpartition("> ")[2]
            subprocess.run(message.strip().rpartition("line: ")[2], shell=True, check=True)
            assert [json.loads(line) for line in Path(new).read_text().splitlines()] == rows
            Path(new).unlink()


def test_json_lines_may_be_in_a_file_json():
    rows = [{"source": "s" * number, "target": "t" * number} for number in range(1, 20)]
    Path("a.json").write_text("\n".join(map(json.dumps, rows)))
    split("a.json", "--validation", 1, "--test", 1)


def tar(path):
    with tarfile.open(path, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("a.en"))


def office(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("word/document.xml", "<w/>")


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        ("a.tar.gz", tar, "a.tar.gz is a tar archive; unpack it: tar -xf a.tar.gz"),
        (
            "a.mo",
            lambda path: path.write_bytes(b"\xde\x12\x04\x95\0\t\n\0"),
            "a.mo is a compiled catalogue of gettext. Convert it to PO: msgunfmt -o a.po a.mo",
        ),
        ("a.xlsx", office, "a.xlsx is an office document, not text; save it from its program as"),
    ],
)
def test_files_that_are_no_text_are_named(name, write, message):
    write(Path(name))
    assert message in split(name, status=1)
    Path("b.en").write_text("a\n")
    assert message in split(name, "b.en", status=1)
