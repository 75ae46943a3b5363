"""Vocabularies of Marian are read as Marian wrote them, whatever YAML makes of a piece."""

from pathlib import Path

import pytest
import yaml

from nmt_cli.files import text_files
from nmt_cli.interchange.marian.files import MarianFiles
from nmt_cli.interchange.marian.importer import parse_vocabulary, read_vocabularies
from nmt_cli.messages.errors import DamagedError, UserError

# Lines that Marian 1.12.42 wrote for words, and the words.
LINES = [
    ("</s>", "</s>"), ("<unk>", "<unk>"), ("yes", "yes"), ('"~"', "~"), ('"-"', "-"),
    ('"#"', "#"), ('"#a"', "#a"), (r'"\""', '"'), ('"\'"', "'"), ('":"', ":"), ('"a:"', "a:"),
    ('"?"', "?"), ("?x", "?x"), ("<<", "<<"), ('"&a"', "&a"), ('"*a"', "*a"), ('"!x"', "!x"),
    ('"{"', "{"), ("\x85", "\x85"), ("\u2028x", "\u2028x"), ("\U0001f600", "\U0001f600"),
    (r'"\ufeff"', "\ufeff"), ("\xa0", "\xa0"), ("0x1F", "0x1F"), ("1e3", "1e3"), ('"null"', "null"),
    ("\\", "\\"), (r"a\n", r"a\n"), (r'"\x07"', "\x07"), ("---", "---"), ("...", "..."),
    ("12", "12"), ("1:2", "1:2"), ("a#b", "a#b"), ("='x'", "='x'"), ('a"b', 'a"b'), ("on", "on"),
    (r'"t\tb"', "t\tb"), ("\u3000", "\u3000"), ("'it''s'", "it's"), (r'"\U0001F601"', "\U0001f601"),
    (r'"\\x41"', r"\x41"), ("\ufffd", "\ufffd"),
]  # fmt: skip


def read(path, size=3):
    files = MarianFiles(path, {"source": path, "target": path}, None)
    reasons: list[str] = []
    found, _ = read_vocabularies(files, {"source": size}, reasons)
    return found, reasons


def test_each_line_is_a_piece_and_its_number():
    text = "".join(f"{line}: {number}\n" for number, (line, _) in enumerate(LINES))
    found = parse_vocabulary(text, Path("vocab.yml"))
    assert found == {piece: number for number, (_, piece) in enumerate(LINES)}


@pytest.mark.parametrize("options", [{}, {"allow_unicode": True}, {"width": 20}], ids=str)
def test_pyyaml_writes_some_keys_in_several_lines(options):
    """Long ones, and those with a character that ends a line for it."""
    pieces = ["</s>", "<unk>", "a", "\u2581\x85\x84x", "\u2581\u2028", "yes", "- " * 70 + "x",
              "y" * 130, "\u4e2d" * 90, "it's" * 40, "? x", ": x", "-", "\U0001f600"]  # fmt: skip
    text = yaml.dump({piece: number for number, piece in enumerate(pieces)}, **options)
    assert text.count("\n: ") >= 5
    assert parse_vocabulary(text, Path("vocab.yml")) == yaml.safe_load(text)


def test_u007f_stands_in_two_bytes_in_the_files(tmp_path):
    path = tmp_path / "vocab.yml"
    path.write_bytes(b'</s>: 0\n<unk>: 1\n"a\xc1\xbf": 2\n')
    found, reasons = read(path)
    assert found["source"].pieces == ["<unk>", "<s>", "</s>", "a\x7f"]
    assert reasons == []


def test_json_is_read_too(tmp_path):
    path = tmp_path / "vocab.json"
    path.write_text('{"eos": 0, "UNK": 1, "a": 2, "beyond": 3}')
    found, reasons = read(path)
    assert found["source"].pieces == ["<unk>", "<s>", "</s>", "a"]
    assert found["source"].rows == [1, -1, 0, 2]
    assert reasons == []


def test_other_files_have_one_piece_a_line(tmp_path):
    path = tmp_path / "source.vocab"
    path.write_text("</s>\n<unk>\na:7\n")
    found, reasons = read(path)
    assert found["source"].pieces == ["<unk>", "<s>", "</s>", "a:7"]
    assert reasons == []
    for text, reason in (("a\na\n", "has a piece again"), ("a\n\nb\n", "is empty")):
        path.write_text(text)
        with pytest.raises(DamagedError, match=f"source.vocab:2: this line {reason}"):
            read(path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: 0\na: 1\n", r"vocab\.yml:2: this line has a piece again; get the vocabulary again"),
        ("a: 0\nb\n", r"vocab\.yml:2: this line is no piece with its number"),
        ("a: &x [*x]\n", "vocab.yml:1: "),
        ("&x a: *x\n", "vocab.yml:1: "),
        ("a: -1\n", "vocab.yml:1: "),
        ("a: 99999999999999\n", "vocab.yml:1: "),
        ('"\\ud800": 1\n', "vocab.yml:1: "),
        ('"\\UFFFFFFFF": 1\n', "vocab.yml:1: "),
        ('"\\q": 1\n', "vocab.yml:1: "),
        ("? a\n: 1\na: 2\n", r"vocab\.yml:3: this line has a piece again"),
        ("b: 0\n? a\nc: 1\n", r"vocab\.yml:2: this line is no piece with its number"),
        ("? 'a\n  b'\n: x\n", "vocab.yml:1: "),
        ("? &x a\n: 1\n", "vocab.yml:1: "),
        ("? " + "[" * 50_000 + "\n: 1\n", "vocab.yml:1: "),
        ("? a\n" * 600_000, "vocab.yml:1: "),
        ("\x00\x01\n", "vocab.yml:1: "),
        ("a:" * 50_000, "vocab.yml:1: "),
        ('"' + "\\" * 50_001 + ": 1", "vocab.yml:1: "),
    ],
)
def test_other_lines_are_refused_in_one_line(text, reason):
    with pytest.raises(DamagedError, match=reason) as caught:
        parse_vocabulary(text, Path("vocab.yml"))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_files_that_are_no_text_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "vocab.yml"
    path.write_bytes(b"\xff: 1\n")
    with pytest.raises(DamagedError, match=r"vocab\.yml is not UTF-8 text"):
        read(path)
    monkeypatch.setattr(text_files, "LARGEST_FILE", 1 << 20)
    path.write_bytes(b"a" * ((1 << 20) + 1))
    with pytest.raises(UserError, match=r"vocab\.yml is larger than 1 MB; is it a vocabulary\?"):
        read(path)
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        read(tmp_path)
