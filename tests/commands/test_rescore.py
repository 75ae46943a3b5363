"""The command: a number for each line, whatever the lines are, and the perplexity."""

import gzip
import io
import json
import math
import random
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.commands.rescore import pair_windows
from nmt_cli.files.lines import is_blank
from nmt_cli.translating.rescorer import Rescorer

MODEL = Path(__file__).parents[1] / "formats/format_2/whitespace/run/average"
SOURCE = b"ant bee\r\n\n<s> \xff ||| \x0b\nlone\rreturn\nfox"
TARGET = b"bee ant\nant\nbee\n\nfox\n"


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Run the command in an empty folder with two texts; return its result."""
    monkeypatch.chdir(tmp_path)
    Path("text.en").write_bytes(SOURCE)
    Path("text.de").write_bytes(TARGET)

    def invoke(*arguments, status=0, texts=("text.en", "text.de"), stdin=None):
        words = ["rescore", str(MODEL), *texts, *arguments, "--device", "cpu", "--threads", "1"]
        result = CliRunner().invoke(cli.main, [*words, "--precision", "fp32"], input=stdin)
        assert result.exit_code == status, result.output
        return result

    return invoke


def expected():
    """Return what the interface gives for the lines as text."""
    lines = ["ant bee", "", "<s> \ufffd ||| \x0b", "lone\rreturn", "fox"]
    rescorer = Rescorer.load(MODEL, device="cpu", precision="fp32")
    return list(rescorer.rescore(zip(lines, TARGET.decode().split("\n"), strict=False)))


def test_a_number_for_each_line_and_the_perplexity(call):
    found = call()
    scored = expected()
    shown = ["" if each.score is None else f"{each.score:.6f}" for each in scored]
    assert found.stdout.split("\n") == [*shown, ""]
    assert shown[1] == ""
    scores = [score for each in scored for score in each.token_scores]
    assert len(scores) == 3 + 2 + 1 + 2
    perplexity = math.exp(-sum(scores) / len(scores))
    assert f"Perplexity {perplexity:,.3f} of a piece (8 pieces, with </s>" in found.stderr
    assert "Scored 5 lines in" in found.stderr
    assert "1 line has a blank source, and so no score." in found.stderr
    assert "Bad UTF-8: 1 byte sequence became U+FFFD." in found.stderr


def test_tsv_and_jsonl_hold_the_pieces_and_their_scores(call):
    scored = expected()
    rows = [row.split("\t") for row in call("--format", "tsv").stdout.splitlines()]
    records = [json.loads(line) for line in call("--format", "jsonl").stdout.splitlines()]
    assert len(rows) == len(records) == 5
    for number, (row, record, each) in enumerate(zip(rows, records, scored, strict=True), 1):
        assert row[:1] == [str(number)]
        assert tuple(row[2].split()) == each.tokens
        assert [float(score) for score in row[3].split()] == pytest.approx(
            list(each.token_scores), abs=1e-6
        )
        assert record == json.loads(json.dumps({"line": number, **each._asdict()}))


def test_the_length_penalty_is_that_of_the_search(call):
    plain, divided = (
        [float(line or "nan") for line in call(*options).stdout.splitlines()]
        for options in ([], ["--length-penalty", "0.6"])
    )
    assert divided[0] == pytest.approx(plain[0] / ((5 + 3) / 6) ** 0.6, abs=1e-6)
    assert divided[3] == pytest.approx(plain[3], abs=1e-6)  # </s> alone


def test_texts_may_be_compressed_or_come_from_stdin(call, tmp_path):
    plain = call().stdout
    (tmp_path / "text.en.gz").write_bytes(gzip.compress(SOURCE))
    assert call(texts=("text.en.gz", "-"), stdin=TARGET).stdout == plain
    assert call(texts=("-", "text.de"), stdin=SOURCE).stdout == plain


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("text.en", r"text\.de ends after 5 lines, but text\.en has more"),
        ("text.de", r"text\.en ends after 5 lines, but text\.de has more"),
    ],
)
def test_texts_of_unlike_length_are_an_error_after_the_shared_lines(call, tmp_path, more, message):
    plain = call().stdout
    with (tmp_path / more).open("ab") as stream:
        stream.write(b"\nant\n" if more == "text.en" else b"ant\n" * 5000)
    result = call(status=1)
    assert result.stdout == plain
    assert re.search(rf"^Error: {message}; line n of one must be", result.stderr, re.M)
    call("--output", "scores", status=1)
    assert not (tmp_path / "scores").exists()


def test_a_failed_line_is_empty_named_and_status_3(call, tmp_path):
    (tmp_path / "text.de").write_bytes(TARGET.replace(b"bee\n", b"bee " * 90 + b"\n", 1))
    lines = [b"bee ant", b"ant", b"bee " * 90, b"", b"fox"]
    (tmp_path / "text.de").write_bytes(b"\n".join(lines) + b"\n")
    plain = [f"{each.score:.6f}" if each.score is not None else "" for each in expected()]
    result = call(status=3)
    assert result.stdout.split("\n") == [*plain[:2], "", *plain[3:], ""]
    assert "line 3 could not be scored: its target has 90 pieces, the model" in result.stderr


def test_output_appears_whole_and_replaces_no_text(call, tmp_path):
    plain = call().stdout
    call("--output", "scores.gz")
    assert gzip.decompress((tmp_path / "scores.gz").read_bytes()).decode() == plain
    assert "scores.gz already exists; add --force" in call("--output", "scores.gz", status=1).stderr
    call("--output", "scores.gz", "--force")
    result = call("--output", "text.de", "--force", status=1)
    assert result.stderr == (
        "Error: the text text.de is a file that --output text.de would replace; choose another "
        "--output.\n"
    )
    assert (tmp_path / "text.de").read_bytes() == TARGET


def test_a_text_may_have_a_name_that_only_translate_would_write(call, tmp_path):
    text = (tmp_path / "text.de").rename(tmp_path / "scores.partial")
    call("--output", "scores", texts=("text.en", text.name))
    assert text.read_bytes() == TARGET


def test_fuzzed_lines_keep_their_number_and_order(call, tmp_path):
    rng = random.Random(1)
    chunks = [b"ant", b" ", b"\r", b"\xff", "\u2028".encode(), b"\x0b", b"\0", b"</s> ", b"bee "]
    sources = [b"".join(rng.choices(chunks, k=rng.randrange(4))) for _ in range(150)]
    targets = [b"bee " * rng.randrange(5) for _ in range(150)]
    (tmp_path / "text.en").write_bytes(b"\n".join(sources) + b"\n")
    (tmp_path / "text.de").write_bytes(b"\n".join(targets) + b"\n")
    rows = [row.split("\t") for row in call("--format", "tsv").stdout.split("\n")[:-1]]
    assert [int(number) for number, *_ in rows] == list(range(1, 151))
    for source, target, (_, score, pieces, _) in zip(sources, targets, rows, strict=True):
        assert (score == "") == is_blank(source.decode(errors="replace"))
        assert pieces.split() == ([] if score == "" else target.decode().split())


def test_no_lines_have_no_scores(call, tmp_path):
    for name in ("text.en", "text.de"):
        (tmp_path / name).write_bytes(b"")
    result = call()
    assert result.stdout == ""
    assert "Scored 0 lines" in result.stderr
    assert "Perplexity" not in result.stderr


def test_windows_end_where_one_text_stalls():
    """Windows of both texts are cut to the shorter one, and no line is lost between them."""
    one, other = (
        io.BytesIO("".join(f"{side} {n}\n" for n in range(3000)).encode())
        for side in ("source", "target")
    )
    found = pair_windows((one, other), (Path(), Path()), lambda number, is_estimate: None)
    pairs = [pair for window in found for pair in window]
    assert [(source.text, target.text) for source, target in pairs] == [
        (f"source {n}", f"target {n}") for n in range(3000)
    ]
