"""The command as a pipe: N lines in are N lines out, in order, whatever happens."""

import errno
import gzip
import io
import json
import os
import random
import re
import select
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt_cli.commands import translate
from nmt_cli.files.atomic_files import directory_appearing_whole
from nmt_cli.files.lines import is_blank, one_line
from nmt_cli.files.locks import claimed
from nmt_cli.files.output_streams import CLOSED_STDOUT
from nmt_cli.files.temporary_names import temporary_path
from nmt_cli.files.text_files import open_text
from nmt_cli.messages import logs
from nmt_cli.messages.errors import OutputError, UserError
from nmt_cli.model.transformer import Transformer
from nmt_cli.translating.interface.translation import Alternative, Translation
from nmt_cli.translating.translator import Translator
from tests.compressed import UNPACK
from tests.fake_models import copying, save_as_model, tiny_recipe
from tests.tagging import NASTY, StandIn, digest, expected_output

MODEL = Path("model")


class TaggingTranslator(StandIn):
    """Answers each line with a hash of it, so that a line in the wrong place shows."""

    def __init__(self, fails=lambda line: None):
        self.fails = fails
        self.windows = []

    def translate_window(self, lines):
        self.windows.append(len(lines))
        return [self.answer(line.text) for line in lines]

    def answer(self, line):
        if is_blank(line):
            return Translation()
        error = self.fails(line)
        return Translation(error=error) if error else Translation(digest(line), -1.0, ("a",))


class Pipe:
    """Runs the command with bytes for stdin and for stdout."""

    def __init__(self, monkeypatch, translator):
        self.monkeypatch = monkeypatch
        monkeypatch.setattr(Translator, "load", lambda *_, **__: translator)

    def __call__(self, data, **options):
        stdout = io.TextIOWrapper(io.BytesIO())
        self.monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
        self.monkeypatch.setattr("sys.stdout", stdout)
        # Other processes would load a model, and the translator of these tests has none.
        self.status = translate.run(MODEL, workers=1, **options)
        return stdout.buffer.getvalue()


@pytest.fixture
def pipe(monkeypatch):
    logs.configure(quiet=False)
    return Pipe(monkeypatch, TaggingTranslator())


@pytest.fixture
def copying_pipe(monkeypatch):
    """The real translator, with a model that copies its input."""
    logs.configure(quiet=False)
    return Pipe(monkeypatch, copying(monkeypatch, recipe=tiny_recipe(data={"max_length": 60}))[0])


def test_every_nasty_line_has_its_answer(pipe):
    for end in (b"", b"\n"):
        data = b"\xef\xbb\xbf" + b"\n".join([b"first", *NASTY, b"last"]) + end
        assert pipe(data) == expected_output(data, digest)
        assert pipe.status == 0


def test_the_nasty_file_through_search_and_tokenizer(copying_pipe):
    data = b"\n".join([*NASTY, b"x" * 20_000, "end \u2028".encode()]) + b"\n"
    out = copying_pipe(data)
    assert out.count(b"\n") == data.count(b"\n")
    assert out == expected_output(data, one_line)


@pytest.mark.parametrize("seed", range(4))
def test_fuzzed_lines_come_out_in_order(pipe, seed):
    rng = random.Random(seed)
    chunks = [*NASTY, b"\n", b"\n", b"\r\n", b"word ", b"Wort\xc3\xa4 "]

    def chunk():
        if rng.random() < 0.3:
            return rng.randbytes(rng.randrange(6))
        return rng.choice(chunks)

    data = b"".join(chunk() for _ in range(10_000))
    assert pipe(data) == expected_output(data, digest)


@pytest.mark.parametrize("seed", range(3))
def test_fuzzed_lines_through_search_and_tokenizer(copying_pipe, seed):
    rng = random.Random(seed)
    lines = [b"".join(rng.choices([*NASTY, b"ab", b" c"], k=rng.randrange(4))) for _ in range(200)]
    data = b"\n".join(line for line in lines if len(line.decode(errors="replace").encode()) <= 60)
    assert copying_pipe(data) == expected_output(data, one_line)


def test_all_pairs_of_high_bytes(pipe):
    data = b"\n".join(bytes([a, b]) for a in range(128, 256) for b in range(128, 256))
    assert pipe(data) == expected_output(data, digest)


def test_what_was_cut_and_repaired_is_logged(pipe, capsys):
    pipe(b"\xef\xbb\xbfone\ntwo \xff\xff\nthree\nfour \xc0")
    stderr = capsys.readouterr().err
    assert "Cut a byte order mark before the first line." in stderr
    assert "Bad UTF-8: 3 byte sequences became U+FFFD in 2 lines (2, 4)." in stderr
    assert "Translated 4 lines in" in stderr


def test_quiet_logs_nothing_about_plain_lines(pipe, capsys):
    logs.configure(quiet=True)
    pipe(b"one\ntwo\n")
    assert capsys.readouterr().err == ""


def test_too_long_lines_are_reported(copying_pipe, capsys):
    data = b"\n".join([b"short", b"long " * 30, b"short"] * 6)
    assert copying_pipe(data).split() == data.split()
    stderr = capsys.readouterr().err
    assert "too long for the model, translated in parts: 6 lines (2, 5, 8, 11, 14, 17)." in stderr


def test_lines_of_letters_that_the_model_never_saw_are_counted(monkeypatch, capsys):
    found = [Translation("a", copies_unseen=n in {1, 3}) for n in range(5)]
    monkeypatch.setattr(TaggingTranslator, "translate_window", lambda *_: found)
    Pipe(monkeypatch, TaggingTranslator())(b"line\n" * 5)
    warning = "Warning: copied, because the model never saw such letters: 2 lines (2, 4)."
    assert capsys.readouterr().err.count(warning) == 1


def test_lines_that_lost_sentences_are_counted_once(monkeypatch, capsys):
    found = [Translation("a", -1.0, lacks_sentences=n % 2 == 0) for n in range(30)]
    monkeypatch.setattr(TaggingTranslator, "translate_window", lambda *_: found)
    Pipe(monkeypatch, TaggingTranslator())(b"line\n" * 30)
    (warning,) = (line for line in capsys.readouterr().err.splitlines() if "sentence" in line)
    assert warning == (
        "Warning: most sentences have no translation: 15 lines (1, 3, 5, 7, 9, 11, 13, 15, 17, 19 "
        "...); --split-sentences translates each sentence of a line by itself."
    )


def test_failed_lines_are_empty_and_named(monkeypatch, capsys):
    def fails(line):
        return "RuntimeError: no\x1b[31m way" if line.startswith("bad") else None

    logs.configure(quiet=False)
    pipe = Pipe(monkeypatch, TaggingTranslator(fails))
    lines = ["good", "bad", "good", "bad one", "good"]
    out = pipe("\n".join(lines).encode() + b"\n").decode().split("\n")
    assert out == [digest("good"), "", digest("good"), "", digest("good"), ""]
    assert pipe.status == 3
    stderr = capsys.readouterr().err
    assert "line 2 could not be translated: RuntimeError: no\\x1b[31m way." in stderr
    assert "line 4 could not be translated" in stderr
    assert "\x1b[31m" not in stderr


def test_input_and_output_files(pipe, tmp_path):
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_bytes(b"one\r\ntwo")
    assert pipe(b"", input_path=source, output_path=target) == b""
    assert target.read_bytes() == expected_output(b"one\r\ntwo", digest)
    with pytest.raises(UserError, match="out already exists; add --force to replace it"):
        pipe(b"three\n", output_path=target)
    pipe(b"three\n", output_path=target, force=True)
    assert target.read_bytes() == expected_output(b"three\n", digest)
    assert sorted(tmp_path.iterdir()) == [source, target]


def test_a_log_names_the_lines_of_the_input_file_and_the_time_left(
    pipe, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(logs, "SECONDS_BETWEEN_PLAIN_REPORTS", 0.0)
    (tmp_path / "in").write_bytes(b"line\n" * 3003)
    pipe(b"", input_path=tmp_path / "in", output_path=tmp_path / "out")
    first, *_ = capsys.readouterr().err.splitlines()
    assert re.fullmatch(
        r"Translating: 1,024 of (about )?3,003 lines, [\d,]+ lines/s, \d\d:\d\d elapsed, "
        r"\d\d:\d\d left",
        first,
    )
    pipe(b"line\n" * 20_000)
    first, *_ = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"Translating: 512 lines, [\d,]+ lines/s, \d\d:\d\d elapsed", first)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32"])
def test_utf_16_is_refused_with_the_command_that_converts_it(pipe, tmp_path, encoding):
    source, output = tmp_path / "in", tmp_path / "out"
    data = "ein Satz\nnoch einer\n".encode(encoding)
    name = encoding.upper().replace("-BE", "BE")
    source.write_bytes(data)
    with pytest.raises(UserError) as refused:
        pipe(b"", input_path=source, output_path=output)
    problem, _, convert = str(refused.value).partition(" Convert it to UTF-8: ")
    assert problem == f"{source} is {name} text."
    subprocess.run(convert, shell=True, check=True)
    assert (tmp_path / "utf8-in").read_text() == "ein Satz\nnoch einer\n"
    assert not output.exists()

    with pytest.raises(UserError) as refused:
        pipe(data)
    convert = str(refused.value).partition(" Convert it to UTF-8: ")[2]
    done = subprocess.run(convert, shell=True, check=True, input=data, capture_output=True)
    assert done.stdout == b"ein Satz\nnoch einer\n"


def test_a_nul_is_no_sign_of_utf_16(pipe):
    data = b"\0\nA\0\n"
    assert pipe(data) == expected_output(data, digest)


def test_looking_for_utf_16_takes_nothing_from_a_pipe(pipe, tmp_path):
    reading, writing = os.pipe()
    os.write(writing, b"one\n")
    os.close(writing)
    assert pipe(b"", input_path=Path(f"/dev/fd/{reading}")) == expected_output(b"one\n", digest)
    os.close(reading)


def test_no_output_file_is_left_when_the_input_is_missing(pipe, tmp_path):
    with pytest.raises(UserError, match="none not found"):
        pipe(b"", input_path=tmp_path / "none", output_path=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", UNPACK)
def test_output_is_compressed_if_its_suffix_asks_for_it(pipe, tmp_path, suffix):
    first, second = tmp_path / f"one{suffix}", tmp_path / f"two{suffix}"
    data = b"one\r\n\n" + b"two\n" * 2000
    pipe(data, output_path=first)
    expected = expected_output(data, digest)
    assert UNPACK[suffix](first.read_bytes()) == expected
    with open_text(first) as stream:
        assert stream.read() == expected
    pipe(data, output_path=second)
    assert first.read_bytes() == second.read_bytes()  # without a time or a name


@pytest.mark.parametrize("suffix", UNPACK)
def test_compressed_output_of_an_empty_text_can_be_read(pipe, tmp_path, suffix):
    path = tmp_path / f"out{suffix}"
    pipe(b"", output_path=path)
    assert path.stat().st_size > 0
    assert UNPACK[suffix](path.read_bytes()) == b""
    with open_text(path) as stream:
        assert stream.read() == b""


@pytest.mark.parametrize("name", ["out", "out.gz"])
def test_lines_before_damaged_input_are_not_published_as_a_whole_file(pipe, tmp_path, name):
    source = tmp_path / "in.gz"
    source.write_bytes(gzip.compress(random.Random(1).randbytes(5000).hex().encode())[:2000])
    with pytest.raises(UserError, match=r"in\.gz is damaged"):
        pipe(b"", input_path=source, output_path=tmp_path / name)
    assert list(tmp_path.iterdir()) == [source]


def test_other_compressed_output_is_refused(pipe, tmp_path):
    with pytest.raises(UserError, match=r"out\.bz2 cannot be written: compressed output ends in"):
        pipe(b"one\n", output_path=tmp_path / "out.bz2")
    assert list(tmp_path.iterdir()) == []


def test_output_may_be_a_device_or_a_pipe(pipe, tmp_path):
    assert pipe(b"one\n", output_path=Path("/dev/null")) == b""
    assert Path("/dev/null").is_char_device()
    reading, writing = os.pipe()
    pipe(b"one\n", output_path=Path(f"/dev/fd/{writing}"))
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        assert stream.read() == expected_output(b"one\n", digest)


def test_a_second_translation_into_the_same_file_is_refused(pipe, tmp_path):
    with claimed(tmp_path / "out", "--output"), pytest.raises(UserError, match="out is in use: "):
        pipe(b"one\n", output_path=tmp_path / "out")
    temporary_path(tmp_path / "out", "partial").write_bytes(b"what a killed one left")
    pipe(b"one\n", output_path=tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


class NBestTranslator(TaggingTranslator):
    def answer(self, line):
        if line == "bad":
            return Translation(error="it is bad")
        others = (Alternative("zwei\tte", -2.5, ("zwei", "te")),)
        return Translation(f"[{line}]", -0.25, ("[", "]"), alternatives=others)


def test_tsv(monkeypatch):
    out = Pipe(monkeypatch, NBestTranslator())(b"one\r\nbad\ntwo", output_format="tsv", n_best=2)
    assert [row.split("\t") for row in out.decode().splitlines()] == [
        ["1", "1", "-0.250000", "[one]"],
        ["1", "2", "-2.500000", "zwei te"],
        ["2", "1", "", ""],
        ["3", "1", "-0.250000", "[two]"],
        ["3", "2", "-2.500000", "zwei te"],
    ]


def test_jsonl(monkeypatch):
    data = 'o\u2028e\r\nbad\n"two"'.encode()
    out = Pipe(monkeypatch, NBestTranslator())(data, output_format="jsonl", n_best=2)
    first, bad, last = (json.loads(line) for line in out.decode().splitlines())
    assert first == {
        "line": 1,
        "text": "[o e]",
        "score": -0.25,
        "tokens": ["[", "]"],
        "alternatives": [{"text": "zwei\tte", "score": -2.5, "tokens": ["zwei", "te"]}],
        "error": None,
        "num_parts": 1,
        "truncated": False,
    }
    assert (bad["line"], bad["text"], bad["score"], bad["error"]) == (2, "", None, "it is bad")
    assert last["text"] == '["two"]'


class ScoredTranslator(TaggingTranslator):
    def answer(self, line):
        if line == "bad":
            return Translation(error="it is bad")
        if is_blank(line):
            return Translation()
        others = (
            Alternative("zwei", -2.0, ("▁zwei",), log_probability=-3.0, token_scores=(-2.5, -0.5)),
        )
        pieces = ("▁a", "▁", "|||", "b\t")
        best = (0.0, -1.0, -0.25, -0.25, 0.0)
        return Translation(
            "a |||b\t",
            -1.0,
            pieces,
            alternatives=others,
            log_probability=-1.5,
            token_scores=best,
        )


def test_moses_n_best_lists(monkeypatch):
    out = Pipe(monkeypatch, ScoredTranslator())(
        b"one\r\nbad\n \ntwo", output_format="moses", n_best=2
    )
    best = "||| a &#124;&#124;&#124;b\t ||| F0= -1.500000 ||| -1.000000"
    second = "||| zwei ||| F0= -3.000000 ||| -2.000000"
    assert out.decode().split("\n") == [
        f"0 {best}",
        f"0 {second}",
        "1 |||  ||| F0= -inf ||| -inf",
        "2 |||  ||| F0= 0.000000 ||| 0.000000",
        f"3 {best}",
        f"3 {second}",
        "",
    ]


def test_fairseq_shows_the_text_of_a_record(monkeypatch):
    monkeypatch.setattr(TaggingTranslator, "answer", lambda *_: Translation())
    pipe = Pipe(monkeypatch, TaggingTranslator())
    out = pipe(b'{"text": "one"}\n', input_format="jsonl", output_format="fairseq")
    assert out.startswith(b"S-0\tone\n")


def test_lines_as_fairseq_prints_them(monkeypatch):
    options: dict[str, Any] = {}
    pipe = Pipe(monkeypatch, ScoredTranslator())
    monkeypatch.setattr(
        Translator, "load", lambda *_, **given: options.update(given) or ScoredTranslator()
    )
    out = pipe("o\u2028n\te\r\nbad\n".encode(), output_format="fairseq", n_best=2)
    assert options["token_scores"]
    assert out.decode().split("\n") == [
        "S-0\to n e",
        "H-0\t-1.442695\t▁a ▁ ||| b▁",
        "D-0\t-1.442695\ta |||b ",
        "P-0\t0.0000 -1.4427 -0.3607 -0.3607 0.0000",
        "H-0\t-2.885390\t▁zwei",
        "D-0\t-2.885390\tzwei",
        "P-0\t-3.6067 -0.7213",
        "S-1\tbad",
        "H-1\t-inf\t",
        "D-1\t-inf\t",
        "P-1\t",
        "",
    ]


class AligningTranslator(TaggingTranslator):
    def answer(self, line):
        if line != "a b":
            return Translation(error="it is bad") if line else Translation()
        others = (Alternative("z", -2.0, ("z",), alignment=((1, 0),)),)
        return Translation("x y", -1.0, ("x", "y"), alternatives=others, alignment=((1, 0), (0, 1)))


def test_alignments_in_every_format(monkeypatch):
    pipe = Pipe(monkeypatch, AligningTranslator())
    data = b"a b\r\n\nbad\n"
    assert pipe(data, alignments=True) == b"x y ||| 1-0 0-1\r\n\n\n"
    tsv, moses, fairseq, jsonl = (
        pipe(data, alignments=True, output_format=name, n_best=2).decode().splitlines()
        for name in ("tsv", "moses", "fairseq", "jsonl")
    )
    assert [row.split("\t")[4:] for row in tsv] == [["1-0 0-1"], ["1-0"], [], []]
    links = [row.split(" ||| ")[4:] for row in moses]
    assert links == [["1-0 0-1"], ["1-0"], [], []]
    assert [row for row in fairseq if row[0] == "A"] == ["A-0\t1-0 0-1", "A-0\t1-0"]
    first, blank, failed = map(json.loads, jsonl)
    assert first["alignment"] == [[1, 0], [0, 1]]
    assert first["alternatives"][0]["alignment"] == [[1, 0]]
    assert "alignment" not in blank
    assert "alignment" not in failed


@pytest.mark.parametrize(
    ("output_format", "expected"),
    [
        ("text", "12 : 30 ||| 0-0 1-1 2-2\n"),
        ("tsv", "1\t1\t\t12 : 30\t0-0 1-1 2-2\n"),
        ("moses", "0 ||| 12 : 30 ||| F0= 0.000000 ||| 0.000000 ||| 0-0 1-1 2-2\n"),
        (
            "fairseq",
            "S-0\t12 : 30\nH-0\t0.000000\t\nD-0\t0.000000\t12 : 30\nP-0\t\nA-0\t0-0 1-1 2-2\n",
        ),
    ],
)
def test_lines_that_stay_as_they_are_in_every_format(monkeypatch, output_format, expected):
    kept = Translation("12 : 30", alignment=((0, 0), (1, 1), (2, 2)))
    monkeypatch.setattr(TaggingTranslator, "translate_window", lambda *_: [kept])
    pipe = Pipe(monkeypatch, TaggingTranslator())
    assert pipe(b"12 : 30\n", output_format=output_format).decode() == expected


def test_jsonl_has_token_scores_where_asked_for(monkeypatch):
    pipe = Pipe(monkeypatch, ScoredTranslator())
    record = json.loads(pipe(b"one\n", output_format="jsonl", token_scores=True, n_best=2))
    assert record["token_scores"] == [0.0, -1.0, -0.25, -0.25, 0.0]
    assert record["alternatives"][0]["token_scores"] == [-2.5, -0.5]
    with pytest.raises(UserError, match="--token-scores needs --format jsonl or fairseq"):
        pipe(b"one\n", output_format="tsv", token_scores=True)


def test_jsonl_marks_lines_that_were_in_parts_or_cut(monkeypatch):
    translations = [Translation("a b", -1.0, ("a", "b"), num_parts=3), Translation(truncated=True)]
    monkeypatch.setattr(TaggingTranslator, "translate_window", lambda *_: translations)
    out = Pipe(monkeypatch, TaggingTranslator())(b"one\ntwo\n", output_format="jsonl")
    records = [json.loads(line) for line in out.decode().splitlines()]
    assert [(r["num_parts"], r["truncated"]) for r in records] == [(3, False), (1, True)]


def test_n_best_is_refused_where_it_would_break_the_lines(pipe):
    with pytest.raises(UserError, match="--n-best 2 needs --format tsv, jsonl, moses or fairseq"):
        pipe(b"one\n", n_best=2)


# Half surrogates, also in a pair that is whole, control characters, and what is read as a line end.
NASTY_CHARACTERS = [
    "\ud83d",
    "\udc00x",
    "\udc00\ud83d",
    "\U0001f600",
    "\x00",
    "\x1b[2J",
    "\n",
    "\r",
]
NASTY_CHARACTERS += ["\x0b", "\x85", "\u2028", "\ufeff", "\u200b", "\t", "|||", "\x7f", "\ufffe"]


@pytest.mark.parametrize("output_format", ["text", "tsv", "jsonl", "moses", "fairseq"])
@pytest.mark.parametrize("field", ["text", "prefix", "required", "banned", "key"])
def test_any_character_in_any_field_gives_one_answer(copying_pipe, field, output_format):
    records: list[dict[str, Any]] = []
    for character in NASTY_CHARACTERS:
        for value in (character, f"a{character}b"):
            record: dict[str, Any] = {"text": "ab"}
            if field in ("required", "banned"):
                record[field] = [value, [value]]
            elif field == "key":
                record[value] = 1
            else:
                record[field] = value
            records.append(record)
        records.append({"text": "ab"} | ({"prefix": [character]} if field == "prefix" else {}))
    data = b"\n".join(json.dumps(record).encode() for record in records) + b"\n\n{}\n"
    out = copying_pipe(data, input_format="jsonl", output_format=output_format)
    lines = out.decode().split("\n")[:-1]  # strict UTF-8
    if output_format == "fairseq":
        lines = [line for line in lines if line.startswith("S-")]
    assert len(lines) == len(records) + 2
    assert copying_pipe.status == 3  # of the last line at least
    numbers = {"fairseq": r"S-(\d+)\t", "moses": r"(\d+) \|\|\|", "tsv": r"(\d+)\t"}
    if pattern := numbers.get(output_format):
        first = 1 if output_format == "tsv" else 0
        found = [int(match[1]) for line in lines if (match := re.match(pattern, line))]
        assert found == list(range(first, len(lines) + first))


@pytest.mark.parametrize("output_format", ["text", "jsonl"])
def test_a_blank_line_among_records_is_a_blank_line(copying_pipe, output_format):
    data = b'{"text": "ab"}\n\n  \n{"text": "cd"}\n'
    out = copying_pipe(data, input_format="jsonl", output_format=output_format)
    texts = out.decode().splitlines()
    if output_format == "jsonl":
        texts = [json.loads(record)["text"] for record in texts]
    assert texts == ["ab", "", "", "cd"]
    assert copying_pipe.status == 0


def test_a_reader_that_went_away_ends_it_silently(pipe, monkeypatch, capsys):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stdout:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\n" * 10_000)))
        monkeypatch.setattr("sys.stdout", stdout)
        with pytest.raises(BrokenPipeError):  # which the command line makes status 141
            translate.run(MODEL)
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_reported(pipe, monkeypatch):
    with os.fdopen(os.open("/dev/full", os.O_WRONLY), "w") as stdout:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\n")))
        monkeypatch.setattr("sys.stdout", stdout)
        with pytest.raises(OutputError, match="could not be written: No space left") as caught:
            translate.run(MODEL)
    assert caught.value.exit_status == 74


def test_a_full_disk_under_the_output_file_leaves_nothing(pipe, monkeypatch, tmp_path):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="No space left") as caught:
        pipe(b"one\n", output_path=tmp_path / "out")
    assert caught.value.exit_status == 74
    assert list(tmp_path.iterdir()) == []


def test_closed_streams_are_reported(pipe, monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    with pytest.raises(OutputError, match="standard output is closed"):
        translate.run(MODEL, output_format="text")
    with CLOSED_STDOUT.open("w") as in_place_of_it:
        monkeypatch.setattr("sys.stdout", in_place_of_it)
        with pytest.raises(OutputError, match="standard output is closed"):
            translate.run(MODEL, output_format="text")
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(UserError, match="standard input is closed; give the name of a file"):
        translate.run(MODEL, output_format="text")


@pytest.mark.parametrize("fast_lines", [1, 700])
def test_answers_come_while_the_input_stalls(pipe, monkeypatch, fast_lines):
    in_reading, in_writing = os.pipe()
    out_reading, out_writing = os.pipe()
    with os.fdopen(in_reading) as stdin, os.fdopen(out_writing, "w") as stdout:
        monkeypatch.setattr("sys.stdin", stdin)
        monkeypatch.setattr("sys.stdout", stdout)
        running = threading.Thread(target=translate.run, args=(MODEL,), kwargs={"workers": 1})
        running.start()
        for number in range(3):
            count = fast_lines if number == 1 else 1
            os.write(in_writing, b"x\n" * count)
            wanted = expected_output(b"x\n" * count, digest)
            while wanted:  # and the input stays open
                assert select.select([out_reading], [], [], 20)[0], "no answer"
                got = os.read(out_reading, len(wanted))
                assert wanted.startswith(got)
                wanted = wanted[len(got) :]
        os.close(in_writing)
        running.join(20)
        assert not running.is_alive()
    os.close(out_reading)


def test_a_real_model_with_its_options(toy, tmp_path, capsys):
    logs.configure(quiet=True)
    torch.manual_seed(1)
    model = Transformer(toy.recipe.model, toy.corpus.tokenizer.size)
    with directory_appearing_whole(tmp_path / "model") as partial:
        save_as_model(partial, toy.recipe, toy.corpus.tokenizer, model)
        partial.manifest["kind"] = "average"
    data = b"\n".join([*NASTY, b"cat dog " * 100, b"owl"])
    (tmp_path / "in").write_bytes(data)
    status = translate.run(
        tmp_path / "model",
        input_path=tmp_path / "in",
        output_path=tmp_path / "out",
        output_format="jsonl",
        device="cpu",
        threads=1,
        precision="fp32",
        beam_size=3,
        length_penalty=0.2,
        n_best=2,
        too_long="truncate",
        max_tokens_per_device=500,
        keep_pieces=True,
    )
    records = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert status == 0
    assert [record["line"] for record in records] == list(range(1, len(NASTY) + 3))
    assert all(len(record["alternatives"]) == 1 for record in records[-2:])
    assert f"end cut off: line {len(NASTY) + 1}." in capsys.readouterr().err


def test_a_file_is_never_replaced_by_its_own_translation(tmp_path):
    text = tmp_path / "text"
    text.write_bytes(b"one\n")
    (tmp_path / "link").hardlink_to(text)
    for output in (text, tmp_path / "link"):
        with pytest.raises(UserError, match=r"that --output .* would replace; choose another"):
            translate.run(tmp_path / "model", input_path=text, output_path=output, force=True)
    assert text.read_bytes() == b"one\n"
