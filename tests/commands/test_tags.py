"""Tags in front of the source: each corpus may have one, and translate gets the same one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt_cli.commands import run as run_command
from nmt_cli.commands import translate
from nmt_cli.corpus.augmenter import sampler_of
from nmt_cli.corpus.binarized import Sentences
from nmt_cli.messages.errors import RecipeError, UserError
from nmt_cli.recipe.reading.reader import read_recipe
from tests.commands.conftest import FP32
from tests.conftest import RECIPE, write_pairs

A, B = ("{source: data/a.en, target: data/a.de", "{source: 'data/b,c.en', target: data/b.de")
TAGGED = f"data.train=[{A}, tag: <2de>}}, {B}, tag: <2fr>}}]"
WHITESPACE = "tokenizer={type: whitespace}"


def sentences_of(text):
    tokens, lengths = text.gather(np.arange(len(text)))
    return [part[:-1].tolist() for part in np.split(tokens, np.cumsum(lengths)[:-1])]


@pytest.mark.parametrize("tokenizer", ["tokenizer.algorithm=bpe", WHITESPACE])
@pytest.mark.parametrize("symbols", ["", "<2de>"])
def test_a_source_is_what_translate_reads_with_the_tag_in_front(corpus, tokenizer, symbols):
    more = [tokenizer, f"tokenizer.user_defined_symbols=[{symbols}]"]
    settings = [f"data.train=[{A}, tag: <2de>}}, {B}}}]", "data.validation.tag=<2de>", *more]
    corpus.prepare(*settings)
    prepared = corpus.opened(*settings)
    tagged, plain = corpus.sentences(80, 0), corpus.sentences(30, 2)
    encode = prepared.tokenizer.encode
    found = sentences_of(prepared.source)
    assert found == [encode(f"<2de> {text}") for text in tagged] + [*map(encode, plain)]
    is_symbol_of_user = bool(symbols) and tokenizer != WHITESPACE
    (tag,) = {prepared.tokenizer.pieces(ids)[is_symbol_of_user] for ids in found[:80]}
    assert tag.removeprefix("\u2581") == "<2de>"
    assert sentences_of(prepared.target) == [
        *map(encode, [*corpus.sentences(80, 1), *corpus.sentences(30, 3)])
    ]
    validation = [f"<2de> {text}" for text in corpus.sentences(20, 4)]
    assert sentences_of(prepared.validation[0].source) == [*map(encode, validation)]
    assert prepared.validation[0].lines("source") == validation
    assert prepared.validation[0].lines("target") == corpus.sentences(20, 5)


def test_blank_lines_of_the_validation_text_get_no_tag(corpus):
    corpus.write("data/val.en", ["one", "", "three"])
    corpus.write("data/val.de", ["eins", "zwei", "drei"])
    corpus.prepare(TAGGED, "data.validation.tag=<2fr>", WHITESPACE)
    prepared = corpus.opened(TAGGED, "data.validation.tag=<2fr>", WHITESPACE)
    assert prepared.validation[0].lines("source") == ["<2fr> one", "", "<2fr> three"]


def test_each_named_set_has_its_own_tag(corpus):
    sets = [
        f"{{name: {name}, source: data/val.en, target: data/val.de{tag}}}"
        for name, tag in {"to-de": ", tag: <2de>", "to-fr": ", tag: <2fr>", "plain": ""}.items()
    ]
    settings = [TAGGED, f"data.validation=[{', '.join(sets)}]", WHITESPACE]
    corpus.prepare(*settings)
    prepared, text = corpus.opened(*settings), corpus.sentences(20, 4)
    for measured, tag in zip(prepared.validation, ("<2de> ", "<2fr> ", ""), strict=True):
        expected = [f"{tag}{line}" for line in text]
        assert measured.lines("source") == expected
        assert sentences_of(measured.source) == [*map(prepared.tokenizer.encode, expected)]
    wrong = f"data.test=[{sets[0]}, {sets[1].replace('<2fr>', '<2xx>')}]"
    with pytest.raises(UserError, match=r"^data\.test\.1\.tag: '<2xx>' is not one piece of"):
        corpus.prepare(*settings, wrong, force=True)


def test_a_tag_counts_as_a_piece(corpus):
    corpus.write("data/a.en", ["w " * length for length in (3, 4, 5)])
    corpus.write("data/a.de", ["v"] * 3)
    settings = [TAGGED, "data.max_length=5", WHITESPACE]
    corpus.prepare(*settings)
    dropped = corpus.opened(*settings).manifest["train"][0]["dropped"]
    assert dropped["too_long"]["first_lines"] == [3]


def test_a_folder_with_other_tags_is_refused(corpus):
    corpus.prepare()
    with pytest.raises(
        UserError, match=r"was made with train\.0\.tag null .* says <2de> and <2fr>"
    ):
        corpus.opened(TAGGED)


def test_tags_that_no_source_can_have_are_refused(corpus):
    with pytest.raises(
        UserError,
        match=r"^data\.test\.tag: '<2xx>' is not one piece of the vocabulary; give one of data",
    ):
        corpus.prepare(TAGGED, f"data.test={A}, tag: <2xx>}}")
    corpus.prepare()
    Path("prepared/small/tokenizer.model").rename("own.model")
    existing = "tokenizer={model: own.model}"
    with pytest.raises(
        UserError,
        match=r"^data\.train\.0\.tag: '<2de>' is not one piece of the vocabulary of own\.model; ",
    ):
        corpus.prepare(TAGGED, existing, force=True)
    trees = [TAGGED, "data.treebank={}", "validation.bleu=off"]
    with pytest.raises(RecipeError, match=r"data\.train\.0\.tag: must be null beside treebank, "):
        read_recipe("./small.yaml", trees)


@pytest.mark.parametrize(
    ("algorithm", "strength", "is_plain_piece"),
    [("bpe", 0.6, False), ("unigram", 0.05, False), ("bpe", 0.6, True)],
)
def test_sampling_leaves_the_tag_whole(corpus, algorithm, strength, is_plain_piece):
    """Also if an existing model has learned it as a piece of plain text."""
    settings = [f"tokenizer.algorithm={algorithm}", f"tokenizer.sampling={strength}"]
    tags = f"data.train=[{A}, tag: qqqq}}, {B}, tag: qqqq}}]"
    if is_plain_piece:
        corpus.write("data/a.en", ["qqqq"] * 80)
        corpus.prepare(*settings)
        Path("prepared/small/tokenizer.model").rename("own.model")
        corpus.write("data/a.en", corpus.sentences(80, 0))
        settings = ["tokenizer={model: own.model, sampling: 0.6}"]
    corpus.prepare(tags, *settings, force=True)
    prepared = corpus.opened(tags, *settings)
    sampler = sampler_of(read_recipe("./small.yaml", [tags, *settings]).recipe, prepared)
    assert sampler is not None
    whole = prepared.source.gather(np.arange(len(prepared.source)))
    plain = sentences_of(prepared.source)
    for batch_index in range(3):
        tokens, lengths = sampler.sample(Sentences(*whole), batch_index, "source")
        drawn = [part[:-1].tolist() for part in np.split(tokens, np.cumsum(lengths)[:-1])]
        assert [ids[0] for ids in drawn] == [ids[0] for ids in plain]
        assert sum(one != other for one, other in zip(drawn, plain, strict=True)) > 50
    assert prepared.tokenizer.pieces(plain[0][:1]) == ["\u2581qqqq"]


def test_run_translates_the_test_text_with_its_tag(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed, (name, count) in enumerate({"train": 150, "validation": 11, "test": 7}.items()):
        write_pairs(tmp_path, name, count, seed)
    test = "  test: {source: test.en, target: test.de}\n  max_length: 30\n"
    named = "[{name: plain, source: test.en, target: test.de}, {name: tagged, source: test.en, "
    named += "target: test.de, tag: <x>}]"
    text = RECIPE.format(folder=".").replace("  max_length: 30\n", test)
    untagged = "{source: train.en, target: train.de}"
    tagged_too = f"{untagged}, {untagged.replace('}', ', tag: <x>}')}"
    Path("toy.yaml").write_text(
        text.replace("{source: ./train.en, target: ./train.de}", tagged_too)
    )
    machine: dict[str, Any] = {"threads": 1, **FP32}

    def translated(*more, name="test"):
        overrides = ["training.max_steps=6", "validation.bleu=off", *more]
        run_command.run("toy.yaml", until="translate", overrides=overrides, **machine)
        return Path(f"runs/toy/test/{name}.de").read_text()

    plain, tagged = translated(), translated("data.test.tag=<x>")
    assert plain != tagged
    lines = Path("test.en").read_text().splitlines()
    Path("tagged.en").write_text("".join(f"<x> {line}\n" for line in lines))
    decoding = read_recipe("./toy.yaml").recipe.decoding.model_dump()
    output = Path("witness.de")
    translate.run(
        Path("runs/toy/average"),
        input_path=Path("tagged.en"),
        output_path=output,
        device="cpu",
        precision="fp32",
        threads=1,
        **decoding,
    )
    assert tagged == output.read_text()
    assert translated(f"data.test={named}", name="test.tagged") == tagged
    assert translated(f"data.test={named}", name="test.plain") == plain
