"""Sentences, markup, terms and protected text through the command.

Formats, workers, shards and interruptions.
"""

import json
import random
import re

import pytest
import torch
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.commands import translate
from nmt_cli.commands.lines import line_windows
from nmt_cli.commands.lines.resumable_output import ResumableOutput
from nmt_cli.corpus.text.glossary import Glossary
from nmt_cli.corpus.text.shard_text import Shard
from nmt_cli.corpus.tokenizers.normalization import Normalizer
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import CONTROL, WhitespaceTokenizer
from nmt_cli.files.atomic_files import directory_appearing_whole
from nmt_cli.messages.errors import UserError
from nmt_cli.model.transformer import Transformer
from nmt_cli.translating.interface.options import Constraints
from tests.fake_models import save_as_model, tiny_recipe

WORDS = ["Ant.", "Bee!", "cat", "dog", "Eel?", "fox"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with a model that has not learnt, and a text of 60 lines for it."""
    folder = tmp_path_factory.mktemp("segments")
    recipe = tiny_recipe(model={"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8})
    tokenizer = WhitespaceTokenizer([*CONTROL, *WORDS], Normalizer(recipe.data), None)
    torch.manual_seed(3)
    with directory_appearing_whole(folder / "model") as partial:
        save_as_model(partial, recipe, tokenizer, Transformer(recipe.model, tokenizer.size))
        partial.manifest["kind"] = "average"
    chance = random.Random(1)
    blanks = [" ", "  ", "\t", "\u00a0", " \u2028", "\r"]
    lines = [
        "".join(chance.choice(WORDS) + chance.choice(blanks) for _ in range(chance.randrange(9)))
        for _ in range(60)
    ]
    (folder / "in").write_bytes("".join(f"{line}\n" for line in lines).encode())
    marked = [
        line.replace("cat", "<b>cat dog</b> {a} fox").replace("Bee!", "<br>Bee!<!-- c -->")
        for line in lines
    ]
    (folder / "marked").write_bytes("".join(f"{line}\n" for line in marked).encode())
    (folder / "terms.tsv").write_text("Eel?\tAnt. dog\n")
    return folder / "model"


@pytest.fixture(params=["in", "marked"])
def source(request):
    """A text, whose lines are cut into sentences, and one of HTML with terms and placeholders."""
    return request.param


def translated(model, source, name, **options):
    """Return the output of the text ``source`` beside ``model``."""
    path = model.with_name(name)
    path.unlink(missing_ok=True)
    rules = Constraints()
    if source == "marked":
        terms = Glossary.read(model.with_name("terms.tsv"))
        rules = Constraints(glossary=terms, protect=["common"], protect_strict=True)
    status = translate.run(
        model,
        input_path=model.with_name(source),
        output_path=path,
        device="cpu",
        precision="fp32",
        threads=1,
        split_sentences=True,
        markup="html" if source == "marked" else None,
        constraints=rules,
        arguments=["nmt-cli", "translate"],
        **options,
    )
    assert status == 0
    return path.read_bytes()


def piped(model, lines, *options):
    arguments = ["translate", str(model), "--device", "cpu", "--precision", "fp32", "--quiet"]
    data = "".join(f"{line}\n" for line in lines)
    return CliRunner().invoke(cli.main, [*arguments, *options], input=data)


def test_workers_and_shards_write_what_one_process_writes(model, monkeypatch):
    source = "marked"
    monkeypatch.setitem(line_windows.MOST_LINES, "cpu", 10)
    whole = translated(model, source, "whole")
    text = model.with_name(source).read_bytes()
    kept = (b"\n", b"<b>", b"<br>", b"<!-- c -->", b"{a}")
    assert [whole.count(each) for each in kept] == [text.count(each) for each in kept]
    without_tags = re.sub(rb"</?b>", b"", whole)  # which may stand within a term's translation
    assert without_tags.count(b"Ant. dog") >= text.count(b"Eel?")
    assert translated(model, source, "shared", workers=2) == whole
    shards = [
        translated(model, source, f"shard-{place}", shard=Shard(place, 3)) for place in (1, 2, 3)
    ]
    assert b"".join(shards) == whole


def test_a_document_of_many_paragraphs(model):
    text = "cat Ant.\n\n" * 1_100
    lines = [json.dumps({"text": each, "split": True}) for each in ("cat Ant.", text)]
    asked = piped(model, lines, "--input-format", "jsonl", "--format", "jsonl")
    lines = [json.dumps({"text": each}) for each in ("cat Ant.", text)]
    options = ["--input-format", "jsonl", "--format", "jsonl", "--split-sentences"]
    assert (asked.exit_code, asked.stdout) == (0, piped(model, lines, *options).stdout)
    one, document = [json.loads(line)["text"] for line in asked.stdout.splitlines()]
    assert document == f"{one}\n\n" * 1_100


def test_an_interrupted_translation_goes_on(model, source, monkeypatch):
    monkeypatch.setitem(line_windows.MOST_LINES, "cpu", 10)
    whole, add = translated(model, source, "whole"), ResumableOutput.add

    def interrupted(self, lines, data, num_failed):
        if self.record.num_lines >= 30:
            raise KeyboardInterrupt
        add(self, lines, data, num_failed)

    with monkeypatch.context() as patched:
        patched.setattr(ResumableOutput, "add", interrupted)
        with pytest.raises(UserError):
            translated(model, source, "resumed")
    with pytest.raises(UserError, match="which was made with other options"):
        translated(model, source, "resumed", resume=True, source_language="de")
    assert translated(model, source, "resumed", resume=True) == whole


@pytest.mark.parametrize("output_format", ["text", "tsv", "moses", "fairseq", "jsonl"])
def test_every_format_has_the_rows_of_a_line(model, output_format):
    texts = ["cat Ant.\r\n\r\ndog Bee!\u2028cat fox Bee!\tfox", "cat Ant. dog", " \t ", "dog"]
    lines = [json.dumps({"text": text, "split": True}) for text in texts]
    found = piped(model, lines, "--input-format", "jsonl", "--format", output_format)
    assert found.exit_code == 0
    out = found.stdout_bytes.decode()
    if output_format != "jsonl":
        rows = out.split("\n")[:-1]
        assert len(rows) == 4 * (4 if output_format == "fairseq" else 1)
        return
    records = [json.loads(row) for row in out.splitlines()]
    sources = ["cat Ant.", "dog Bee!", "cat fox Bee!", "fox", "dog"]
    ant, bee, cat, fox, dog = piped(model, sources).stdout.splitlines()
    assert records[0]["text"] == f"{ant}\r\n\r\n{bee}\u2028{cat}\t{fox}"
    assert [record["text"] for record in records[1:]] == [f"{ant} {dog}", " \t ", dog]
    assert len(out.splitlines()) == 4  # no character that some program reads as a line end


def test_markup_of_a_record_is_its_own_and_broken_xml_fails(model):
    texts = [
        ("<b>cat</b> dog", "html"),
        ("<b>cat", "xml"),
        ("cat &amp; <i/>", "xml"),
        ("cat", "none"),
    ]
    lines = [json.dumps({"text": text, "markup": markup}) for text, markup in texts]
    options = ["--input-format", "jsonl", "--markup", "html"]
    found = piped(model, lines, *options)
    assert found.exit_code == 3
    assert "line 2 could not be translated: it is not XML: mismatched tag" in found.stderr
    bold, failed, empty, plain = found.stdout.splitlines()
    assert (bold.count("<b>"), bold.count("</b>"), failed, empty.count("<i/>")) == (1, 1, "", 1)
    assert plain == piped(model, ["cat"]).stdout.rstrip("\n")


@pytest.mark.parametrize("output_format", ["text", "tsv", "moses", "fairseq", "jsonl"])
def test_every_format_has_what_is_protected(model, output_format):
    texts = ["cat {a} dog {a}", "{b}", "dog"]
    found = piped(model, texts, "--protect", "common", "--format", output_format)
    assert found.exit_code == 0
    assert "not copied" not in found.stderr
    rows = found.stdout.splitlines()
    if output_format == "fairseq":
        rows = [row for row in rows if row.startswith("D-")]
    assert [row.count("{a}") for row in rows] == [2, 0, 0]
    assert "{b}" in rows[1]
    if output_format == "jsonl":
        assert not any("not_copied" in row for row in rows)


def test_lines_with_text_that_is_not_copied_are_counted_or_fail(model):
    lines = [
        {"text": "cat {a} {ta}", "banned": [["<unk>"]]},
        {"text": "cat {a}"},
        {"text": "dog {a}", "protect": ["("]},
        {"text": "cat dog", "protect": ["cat"], "banned": ["cat"], "protect_strict": True},
    ]
    options = ["--input-format", "jsonl", "--format", "jsonl", "--protect", "common"]
    found = piped(model, map(json.dumps, lines), *options)
    assert found.exit_code == 3
    records = [json.loads(row) for row in found.stdout.splitlines()]
    assert [record.get("not_copied") for record in records] == [["{a}", "{ta}"], None, None, None]
    assert [record["error"] is None for record in records] == [True, True, False, False]
    assert "protected text not copied exactly once: line 1." in found.stderr
    assert "protect: '(' is no regular expression: missing )" in found.stderr
    strict = piped(model, map(json.dumps, lines[:2]), *options, "--protect-strict")
    assert strict.exit_code == 3
    assert 'line 1 could not be translated: the required phrase "{a}" contains' in strict.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--protect", "("], "--protect: '(' is no regular expression: missing ), unterminated"),
        (["--protect", "a*"], "--protect: 'a*' matches the empty string"),
        (["--protect-strict"], "--protect-strict has an effect only with --protect"),
        (["--protect", "a", "--sample"], "leave out --protect or --sample"),
        (["--protect", "a", "--keep-pieces"], "but --keep-pieces asks for pieces"),
    ],
)
def test_what_protected_text_excludes(model, options, message):
    found = piped(model, ["cat"], *options)
    assert (found.exit_code, found.stdout) == (2, "")
    assert message in found.stderr
