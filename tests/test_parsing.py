"""From a treebank to parses: preprocess, train, translate and score, with nothing made by hand."""

import json
from pathlib import Path

import pytest

from nmt_cli.commands import preprocess, translate
from nmt_cli.commands import run as command
from nmt_cli.files.atomic_files import sha256
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.parsing.labels import Labels
from nmt_cli.parsing.parseval import score_trees
from nmt_cli.parsing.tree import read_trees
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.saved.model_directory import load_model
from nmt_cli.translating.translator import Translator
from tests.random_trees import linearization
from tests.tiny_treebank import write_treebank

RUN = Path("runs/tiny")
LABELS = Labels(frozenset({"S", "NP", "VP"}), frozenset({"DT", "NN", "VBZ", "."}))


def do(*, until="report", overrides=()):
    command.run(
        "tiny.yaml",
        until=until,
        overrides=overrides,
        device="cpu",
        precision="fp32",
        threads=1,
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a finished experiment."""
    folder = tmp_path_factory.mktemp("parsing")
    write_treebank(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        do(until="score")
    return folder


@pytest.fixture
def folder(finished, monkeypatch):
    monkeypatch.chdir(finished)
    return finished


def lines_of(path):
    return path.read_text().split("\n")[:-1]


@pytest.mark.usefixtures("folder")
def test_every_sentence_gives_one_tree_of_its_words():
    sentences, parses = lines_of(RUN / "test/sentences.txt"), lines_of(RUN / "test/test.trees")
    golds = lines_of(RUN / "test/gold.trees")
    assert len(sentences) == len(parses) == len(golds) == 8
    for sentence, parse, gold in zip(sentences, parses, golds, strict=True):
        (tree,), (gold_tree,) = read_trees([parse], "parse"), read_trees([gold], "gold")
        assert " ".join(tree.words) == " ".join(gold_tree.words) == sentence
    assert score_trees(golds, golds).f1 == 100
    assert (
        golds[1] == "(TOP (S (NP (DT the) (NN dog)) (VP (VBZ finds) (NP (DT a) (NN child))) (. .)))"
    )


@pytest.mark.usefixtures("folder")
def test_validation_and_scores_are_parseval():
    records = [json.loads(line) for line in lines_of(RUN / "metrics.jsonl")]
    validations = [record["validation"] for record in records if "validation" in record]
    assert [validation["bleu"] for validation in validations] == [None, None]
    for validation in validations:
        assert validation["quality"] == validation["parseval"]
        assert 0 <= validation["parseval"] <= 100
    scores = json.loads((RUN / "scores/scores.json").read_text())
    parses, golds = lines_of(RUN / "test/test.trees"), lines_of(RUN / "test/gold.trees")
    assert scores == {"lines": 8, "parseval": score_trees(parses, golds)._asdict()}
    assert scores["parseval"]["errors"] == 0
    made_from = json.loads((RUN / "scores/manifest.json").read_text())["made_from"]
    assert made_from["reference"] == sha256(RUN / "test/gold.trees")


def test_the_result_line_has_f1(folder, capsys):
    do()
    assert capsys.readouterr().out.startswith("tiny: F1 ")


@pytest.mark.usefixtures("folder")
def test_the_model_holds_the_notation_and_the_labels():
    settings = load_model(RUN / "average").settings
    assert settings.trees == linearization(LABELS)
    assert json.loads((RUN / "average/config.json").read_text())["format_version"] == 3


@pytest.mark.usefixtures("folder")
def test_each_bracket_and_tag_is_one_piece():
    tokenizer = load_model(RUN / "average").tokenizer
    pieces = tokenizer.pieces(tokenizer.encode("(S(NP<DT><NN>)NP(VP<VBZ>)VP<.>)S", "target"))
    assert pieces[1:] == ["(S", "(NP", "<DT>", "<NN>", ")NP", "(VP", "<VBZ>", ")VP", "<.>", ")S"]


@pytest.mark.usefixtures("folder")
def test_lines_of_any_kind_are_parsed():
    translator = Translator.load(RUN / "average", n_best=2, too_long="split")
    lines = ["", "the dog (big)", "\u2581", "a " * 150, "x\u2028y z\u00a0z", " \t", "\0"]
    parses = list(translator.translate(lines))
    trees = [list(read_trees([parse.text], "parse")) for parse in parses]
    assert [len(found) for found in trees] == [0, 1, 1, 1, 1, 0, 0]
    leaves = [found[0].words for found in trees if found]
    assert leaves == [
        ["the", "dog", "-LRB-big-RRB-"], ["\u2581"], ["a"] * 150, ["x", "y", "z\u00a0z"]
    ]  # fmt: skip
    assert parses[3].num_parts > 1
    assert all(parse.alternatives[0].text.startswith("(TOP ") for parse in parses if parse.text)
    (pieces,) = Translator.load(RUN / "average", keep_pieces=True).translate(["the dog"])
    assert pieces.repairs is None


@pytest.mark.usefixtures("folder")
def test_repairs_are_counted_by_line_and_in_all(tmp_path, capsys):
    logs.configure(quiet=False)
    output = tmp_path / "parses.jsonl"
    translate.run(
        RUN / "average",
        input_path=RUN / "test/sentences.txt",
        output_path=output,
        output_format="jsonl",
        device="cpu",
    )
    found = [json.loads(line) for line in lines_of(output)]
    assert [parse["text"] for parse in found] == lines_of(RUN / "test/test.trees")
    repaired = [parse["line"] for parse in found if parse["repairs"]]
    assert repaired  # after 6 steps the model has not learned to close brackets
    stderr = capsys.readouterr().err.split("\n")
    (message,) = [text for text in stderr if text.startswith("Repaired")]
    assert message.startswith(f"Repaired {len(repaired)} of 8 trees in ")
    added = sum(parse["repairs"].get("added_leaves", 0) for parse in found)
    assert (f"{added} leaves added" in message) == (added > 0)


@pytest.mark.parametrize("treebank", ["{notation: slashes}", "{notation: brackets, tags: XX}"])
def test_tokens_of_other_notations_are_one_piece_too(treebank, tmp_path, monkeypatch):
    write_treebank(tmp_path)
    monkeypatch.chdir(tmp_path)
    preprocess.run(recipe="tiny.yaml", overrides=[f"data.treebank={treebank}"], workers=1)
    manifest = json.loads(Path("prepared/tiny/manifest.json").read_text())
    tokens = 4 * 2 + 6 + 1  # brackets of 4 constituents, 6 tags, </s>
    assert manifest["tokens"]["train"]["target"] == 40 * tokens


def test_a_recipe_measures_trees_only_where_there_are_some():
    with pytest.raises(UserError, match=r"validation\.bleu: must be off with data\.treebank"):
        read_recipe("parsing", ["validation.bleu=greedy"])
    with pytest.raises(UserError, match=r"data\.normalization\.punctuation: must be false beside"):
        read_recipe("parsing", ["data.normalization.punctuation=true"])
    with pytest.raises(UserError, match=r"validation\.parseval: must be off without data\.treeb"):
        read_recipe("base", ["validation.parseval=beam"])
