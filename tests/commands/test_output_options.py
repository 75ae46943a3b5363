"""Options of ``translate`` about the output, through the command."""

import json
from itertools import pairwise

import pytest
import torch
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.commands.lines import line_windows
from nmt_cli.corpus.tokenizers.normalization import Normalizer
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import CONTROL, WhitespaceTokenizer
from nmt_cli.files.atomic_files import directory_appearing_whole
from nmt_cli.model.transformer import Transformer
from nmt_cli.search.sentences import Sampling
from nmt_cli.translating.encoding.sentence_builder import FOR_SAMPLES
from nmt_cli.translating.translator import Translator
from tests.fake_models import save_as_model, tiny_recipe

WORDS = ["ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen"]
LINES = ["cat dog", "", "fox", "eel ant hen", "cat dog", "gnu", "bee"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model directory; the model has not learnt."""
    folder = tmp_path_factory.mktemp("models") / "model"
    recipe = tiny_recipe(model={"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8})
    tokenizer = WhitespaceTokenizer([*CONTROL, *WORDS], Normalizer(recipe.data), None)
    torch.manual_seed(3)
    with directory_appearing_whole(folder) as partial:
        save_as_model(partial, recipe, tokenizer, Transformer(recipe.model, tokenizer.size))
        partial.manifest["kind"] = "average"
    return folder


def run(model, *options, lines=LINES):
    """Run the command with ``lines`` as its standard input."""
    arguments = ["translate", str(model), "--device", "cpu", "--precision", "fp32", "--quiet"]
    data = "".join(f"{line}\n" for line in lines)
    return CliRunner().invoke(cli.main, [*arguments, *options], input=data)


def records(result):
    assert result.exit_code in {0, 3}, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_samples_of_the_command_are_those_of_the_translator(model, monkeypatch):
    monkeypatch.setattr(line_windows, "FIRST_WINDOW", 2)
    options = ["--sample", "--temperature", "0.9", "--sample-top-k", "7", "--sample-top-p", "0.95"]
    options += ["--seed", "5", "--n-best", "3", "--format", "jsonl"]
    found = records(run(model, *options))
    sampling = Sampling(0.9, 7, 0.95, 5)
    translator = Translator.load(model, device="cpu", precision="fp32", sampling=sampling, n_best=3)
    for record, translation in zip(found, translator.translate(LINES), strict=True):
        assert record["text"] == translation.text
        assert record["score"] == pytest.approx(translation.score, abs=1e-4)
        others = [other["text"] for other in record["alternatives"]]
        assert others == [other.text for other in translation.alternatives]


def test_rules_of_the_command_hold_in_beam_search_and_in_samples(model):
    rules = ["--min-length", "4", "--max-length", "6", "--no-repeat-ngram", "2"]
    rules += ["--target-prefix", "hen cat", "--banned", "cat ant", "--banned", "dog"]
    required = ["--required", "fox gnu", "--required", "bee ||| dog fox"]
    for options in (["--beam-size", "3", *required], ["--sample", "--n-best", "3"]):
        for record in records(run(model, *rules, *options, "--format", "jsonl")):
            if record["line"] == 2:
                assert record["text"] == ""
                continue
            for text in [record["text"], *(other["text"] for other in record["alternatives"])]:
                words = text.split()
                assert 4 <= len(words) <= 6
                assert text.startswith("hen cat ")
                if required[0] in options:
                    assert "fox gnu" in text
                    assert "bee" in words  # the other form contains a banned word
                assert "cat ant" not in text
                assert "dog" not in words
                assert len(set(pairwise(words))) == len(words) - 1


def test_text_has_the_translation_that_agrees_most_with_the_others(model):
    options = ["--n-best", "4", "--choose", "mbr"]
    for how in (["--beam-size", "4"], ["--sample"]):
        of_all = records(run(model, *options, *how, "--format", "jsonl"))
        text = run(model, *options, *how).stdout.splitlines()
        assert text == [each["text"] for each in of_all]
        assert [len(each["alternatives"]) for each in of_all].count(3) == len(text) - 1
        plain = records(run(model, *options[:2], *how, "--format", "jsonl"))
        assert [each["text"] for each in plain] != text


def test_lines_with_a_term_of_the_glossary_have_its_translation(model, tmp_path):
    path = tmp_path / "terms.tsv"
    path.write_text("cat\tfox gnu ||| bee\ndog\then\n")
    lines = ["cat ant", "ant", "dog cat"]
    texts = run(model, "--glossary", str(path), lines=lines).stdout.splitlines()
    assert len(texts) == len(lines)
    assert all(any(form in text for form in ("fox gnu", "bee")) for text in texts[::2])
    assert "hen" in texts[2]
    path.write_text("cat\n")
    refused = run(model, "--glossary", str(path)).stderr
    assert refused.startswith(f"Error: {path}:1: a line has 2 or 3 columns")


def test_terms_of_a_soft_glossary_are_shown_in_tags(model, tmp_path):
    path = tmp_path / "terms.tsv"
    path.write_text("cat\tfox gnu ||| bee\n")
    options = "--soft-glossary", str(path), "--term-tags", "hen", "dog"
    shown = run(model, *options, lines=["cat ant", "ant"]).stdout
    assert shown == run(model, lines=["cat hen fox gnu dog ant", "ant"]).stdout
    assert shown != run(model, lines=["cat ant", "ant"]).stdout
    refused = run(model, *options[:2]).stderr
    assert refused.startswith("Error: --soft-glossary: the tag '<t>' is not one piece in the")


def test_lines_for_which_nothing_is_left_fail(model):
    banned = [option for word in WORDS[1:] for option in ("--banned", word)]
    rules = [*banned, "--no-repeat-ngram", "1", "--min-length", "3"]  # ant, <unk> and no third
    result = run(model, *rules, "--format", "jsonl", lines=["cat", "", "fox"])
    assert result.exit_code == 3
    errors = [record["error"] for record in records(result)]
    reason = "the search found no translation that all its rules allow"
    assert errors == [reason, None, reason]


def test_records_have_their_own_options(model):
    lines = [
        '{"text": "cat dog"}',
        '{"text": "cat dog", "prefix": "hen", "n_best": 3, "required": ["bee"]}',
        '{"text": "", "n_best": 2}',
        '{"txt": "cat"}',
        '{"text": "cat dog", "prefix": ["gnu", "<unk>"], "banned": ["fox", ["ant"]]}',
        '{"text": "cat", "n_best": 5}',
        '{"text": "cat", "prefix": "ant fox"}',
        "",
    ]
    options = ["--input-format", "jsonl", "--banned", "fox", "--beam-size", "4", "--format"]
    for how in ([], ["--sample"]):
        chosen = [each for each in options if not how or each not in {"--beam-size", "4"}]
        result = run(model, *chosen, "jsonl", *how, lines=lines)
        assert result.exit_code == 3
        plain, phrased, blank, bad, pieces, many, contrary, empty = records(result)
        (text_only,) = records(run(model, *chosen[2:], "jsonl", *how, lines=["cat dog"]))
        assert {**plain, "score": None} == {**text_only, "score": None}
        if how:
            assert phrased["error"] == FOR_SAMPLES
        else:
            assert phrased["text"].startswith("hen")
            assert len(phrased["alternatives"]) == 2
            assert all("bee" in each["text"] for each in (phrased, *phrased["alternatives"]))
        assert (blank["text"], blank["error"]) == ("", None)
        assert bad["error"] == 'the key "txt" is unknown; the nearest is text'
        assert pieces["tokens"][:2] == ["gnu", "<unk>"]
        assert not {"fox", "ant"} & set(pieces["tokens"])
        assert (many["error"] is None) == bool(how)
        assert contrary["error"] == 'the prefix "ant fox" contains the banned phrase "fox"'
        assert (empty["text"], empty["error"]) == ("", None)
    assert (
        "line 4 could not be translated: the key"
        in run(model, *options, "text", lines=lines).stderr
    )


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (
            ["--banned", "cat", "--required", "dog cat"],
            1,
            'the required phrase "dog cat" contains the banned phrase "cat"; change one of these',
        ),
        (
            ["--min-length", "9", "--max-length", "8"],
            2,
            "--max-length 8 is less than --min-length 9; give a larger",
        ),
        (["--banned", "cow"], 1, 'the vocabulary lacks a piece of the phrase "cow"'),
        (["--temperature", "2"], 2, "--temperature has an effect only with --sample; add --sample"),
        (["--sample-top-k", "2"], 2, "--sample-top-k has an effect only with --sample"),
        (["--choose", "mbr"], 2, "--choose mbr compares several translations of a line; add --n-b"),
        (["--sample", "--beam-size", "2"], 2, "--beam-size is not for --sample"),
        (["--sample", "--required", "cat"], 2, f"{FOR_SAMPLES}; leave out --required or --sample."),
        (["--required", ""], 2, "--required '' has a blank form; give a text."),
        (["--required", "cat ||| "], 2, "--required 'cat ||| ' has a blank form; give a text."),
        (["--banned", " "], 2, "--banned needs a text that is not blank."),
        (["--glossary", "-"], 2, "--glossary - is standard input, from which the text is read;"),
        (["--soft-glossary", "."], 1, ". is a directory, not a text file."),
        (["--term-tags", "a", "b"], 2, "--term-tags has an effect only with --soft-glossary"),
        (["--source-language", "de"], 2, "--source-language has an effect only with --split-sent"),
    ],
)
def test_options_that_contradict_each_other(model, options, status, message):
    result = run(model, *options)
    assert result.exit_code == status
    assert result.stderr.startswith(f"Error: {message}")
    assert result.stdout == ""


def test_a_memory_answers_in_every_process_and_in_a_resumed_output(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    memory, text = tmp_path / "memory.tmx", tmp_path / "in"
    unit = (
        '<tu><tuv xml:lang="en"><seg>cat dog</seg></tuv><tuv xml:lang="de"><seg>{}</seg></tuv></tu>'
    )
    memory.write_text(f"<tmx><body>{unit.format('Katze, Hund')}</body></tmx>")
    text.write_text("".join(f"{line}\n" for line in LINES))
    options = ["--memory", str(memory), "--input", str(text), "--format", "jsonl"]
    first = run(model, *options, "--workers", "2")
    found = records(first)
    assert [each["line"] for each in found if each["text"] == "Katze, Hund"] == [1, 5]
    match = {"source": "cat dog", "target": "Katze, Hund", "similarity": 100}
    assert [each.get("memory") for each in found] == [[match], *[None] * 3, [match], None, None]
    words = ["translate", str(model), "--precision", "fp32", *options, "--output", "out"]
    loud = CliRunner().invoke(cli.main, words)
    assert "Took translations from the memory in 2 lines (1, 5).\n" in loud.stderr
    memory.write_text(f"<tmx><body>{unit.format('Katze Hund')}</body></tmx>")
    refused = run(model, *options, "--output", "out", "--resume")
    assert "out is complete, but was made with other options. Give" in refused.stderr


def test_what_belongs_to_a_memory_is_refused_without_it(model, tmp_path):
    for option in (["--memory-languages", "en", "de"], ["--memory-similarity", "80"]):
        refused = run(model, *option)
        assert refused.stderr.startswith(f"Error: {option[0]} has an effect only with --memory;")
        assert refused.exit_code == 2
    (tmp_path / "m.po").write_text('msgid "a"\nmsgstr "b"\n')
    similar = ["--memory", str(tmp_path / "m.po"), "--memory-similarity", "80"]
    assert "needs --format jsonl" in run(model, *similar).stderr
    assert run(model, "--memory", "absent.tmx").stderr.startswith("Error: absent.tmx not found")
