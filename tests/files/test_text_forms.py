"""Files of another form than a sentence per line, and the commands that convert them."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.files.text_forms import rows_in, why_rows, why_whole_rows, wrong_lines
from tests.compressed import PACK

LANGUAGES = ("en", "de")
PAIRS = [(f"A dog {number}.", f"Ein Hund {number}.") for number in range(30)]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(content, name="a.en"):
    path = Path(name)
    path.write_bytes(PACK.get(path.suffix, bytes)(content.encode()))
    return path


def made_by(command):
    """Return the text in the file that the proposed command writes."""
    subprocess.run(command, shell=True, check=True)
    return Path(command.rpartition("> ")[2]).read_text().splitlines()


@pytest.mark.parametrize("name", ["a.en", "a b.en.gz"])
def test_line_ends_of_old_macs_are_named_with_the_command_that_converts_them(name):
    path = write("one\rtwo\r三\r", name)
    problem = wrong_lines(path) or ""
    assert problem.startswith(f"{path} has the line ends of old Macs (CR alone), so it is read as ")
    command = problem.partition("Convert it: ")[2]
    subprocess.run(command, shell=True, check=True)
    assert wrong_lines(Path(f"lines-{name}")) is None
    unpacked = "gzip -dc" if name.endswith(".gz") else "cat"
    shown = subprocess.run(
        f"{unpacked} 'lines-{name}'", shell=True, check=True, capture_output=True
    )
    assert shown.stdout.decode() == "one\ntwo\n三\n"


@pytest.mark.parametrize("content", ["", "one", "one\r", "one\r\ntwo\r\n", "a\rb\nc\n", "\n\r\r"])
def test_other_line_ends_are_no_problem(content):
    assert wrong_lines(write(content)) is None
    assert wrong_lines(Path("missing")) is None


@pytest.mark.parametrize(
    ("row", "columns", "command"),
    [
        ("{0}\t{1}", "[1, 2]", "cut -f1 a.tsv > a.en"),
        ("7\t{0}\t1.25\t{1}", "[2, 4]", "cut -f2 a.tsv > a.en"),
        ("7\t{0}", None, "cut -f2 a.tsv > a.en"),
    ],
)
def test_columns_are_recognized(row, columns, command):
    path = write("".join(f"{row.format(*pair)}\n" for pair in PAIRS), "a.tsv")
    problem = why_rows(path, 0, LANGUAGES) or ""
    assert problem.startswith(f"a.tsv holds {row.count(chr(9)) + 1} columns with tabs between them")
    assert (f"{{tsv: a.tsv, columns: {columns}}}" in problem) == (columns is not None)
    assert f"cut out a column: {command}; if the tabs are part" in problem
    assert made_by(command) == [source for source, _ in PAIRS]


def test_the_column_of_the_target_is_proposed_for_the_target_under_an_unused_name():
    path = write("".join("\t".join(pair) + "\n" for pair in PAIRS), "a.de.gz")
    assert "gzip -dc a.de.gz | cut -f2 > a.de;" in (why_rows(path, 1, LANGUAGES) or "")
    write("precious", "a.de")
    assert "gzip -dc a.de.gz | cut -f2 > a-2.de;" in (why_rows(path, 1, LANGUAGES) or "")


@pytest.mark.parametrize(
    ("row", "columns", "key"),
    [
        (lambda s, t: {"id": "7", "de": t, "en": s}, "[en, de]", ".en"),
        (
            lambda s, t: {"translation": {"en": s, "de": t}},
            "[translation.en, translation.de]",
            ".translation.en",
        ),
        (lambda s, t: {"target": t, "source": s}, "[source, target]", ".source"),
        (lambda s, _: {"id": "7", "text": s}, None, ".text"),
    ],
)
def test_json_objects_are_recognized(row, columns, key):
    lines = [json.dumps(row(*pair)) for pair in PAIRS]
    problem = why_rows(write("\n".join(lines), "a.jsonl"), 0, LANGUAGES) or ""
    command = f"jq -r {key} a.jsonl > a.en"
    assert problem.startswith("a.jsonl holds JSON objects, not one sentence per line; ")
    assert problem.endswith(f"take out the value of a key: {command}")
    if columns:
        assert f"{{jsonl: a.jsonl, columns: {columns}}}" in problem
    if shutil.which("jq"):
        assert made_by(command) == [source for source, _ in PAIRS]


@pytest.mark.parametrize("keys", [("en-US", "pt-BR"), ("en", "pt")])
def test_keys_that_jq_must_quote(keys):
    objects = [{"translation": dict(zip(keys, pair, strict=True))} for pair in PAIRS]
    path = write("\n".join(map(json.dumps, objects)), "a.jsonl")
    problem = why_rows(path, 1, ("en-US", "pt-BR")) or ""
    assert f"columns: [translation.{keys[0]}, translation.{keys[1]}]}}" in problem
    command = problem.partition("value of a key: ")[2]
    assert command.endswith(" a.jsonl > a.pt-BR")
    if shutil.which("jq"):
        assert made_by(command) == [target for _, target in PAIRS]


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["one\ttwo"],
        ["one\ttwo", "three"],
        ["one\ttwo", "three\tfour\tfive"],
        ["1\t2", "3\t4"],
        ["\tone", "\ttwo"],
        ["one \t", "two \t "],
        ["{A dog} runs.", "{B} runs."],
        ['{"intent": "go", "slots": {}}', '{"intent": "stop"}'],  # such objects may be the text
        ["[1]", "[2]"],
        ["{" * 100_000],
    ],
)
def test_text_is_not_taken_for_rows(lines):
    assert rows_in(write("\n".join(lines)), LANGUAGES) is None


@pytest.mark.parametrize(("encoding", "separator"), [("utf-16", "\n"), ("utf-8", "\r")])
@pytest.mark.parametrize("words", ["align a.en a.en", "score a.en b.de", "score b.de a.en"])
def test_commands_that_read_whole_texts_name_the_cause(encoding, separator, words):
    Path("a.en").write_bytes(separator.join(["one", "two", "三"]).encode(encoding))
    write("eins\nzwei\ndrei\n", "b.de")
    result = CliRunner().invoke(cli.main, words.split())
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"Error: {wrong_lines(Path('a.en'))}\n"


@pytest.mark.parametrize(
    ("row", "name", "message"),
    [
        (
            "{0}\t{1}",
            "a.tsv",
            "a.tsv holds 2 columns with tabs between them, which are translated as one; to "
            "translate only one text of each line: cut -f1 a.tsv | nmt-cli translate ...",
        ),
        ("7\t{0}\t{1}", "a.tsv.gz", "gzip -dc a.tsv.gz | cut -f2 | nmt-cli translate ..."),
        ('{{"text": "{0}", "id": "x"}}', "a.jsonl", "of text, add --input-format jsonl"),
        ('{{"src": "{0}", "tgt": "{1}"}}', "a.jsonl", "jq -r .src a.jsonl | nmt-cli translate ..."),
        ("{0}", "a.txt", None),
        ("{{name}} {0}", "a.txt", None),
    ],
)
def test_rows_that_would_be_translated_whole(row, name, message):
    found = why_whole_rows(write("".join(row.format(*pair) + "\n" for pair in PAIRS), name))
    if message is None:
        assert found is None
    else:
        assert found is not None
        assert found.endswith(message)
