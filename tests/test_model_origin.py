"""A recipe with ``model.from`` trains a model of others further, whatever its tokenizer is."""

import io
import json
import math
import os
import re
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.commands import average_checkpoints, preprocess, run, train
from nmt_cli.corpus.prepared import open_prepared
from nmt_cli.corpus.tokenizers.mapped_sentencepiece import MappedSentencePieceTokenizer
from nmt_cli.corpus.tokenizers.normalization import Normalizer, Side
from nmt_cli.corpus.tokenizers.sentencepiece_tokenizer import SentencePieceTokenizer
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import CONTROL, WhitespaceTokenizer
from nmt_cli.files.atomic_files import directory_appearing_whole
from nmt_cli.messages.errors import RecipeError, UserError
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.recipe.sections.model import ModelConfig
from nmt_cli.saved.model_directory import load_model
from tests.conftest import WORDS
from tests.fake_models import save_as_model, tiny_recipe

SHARED = os.environ.get("NMT_CLI_SHARED")
FORMATS = Path(__file__).parent / "formats"
RECIPE = """\
description: A model, trained further.
data:
  source_language: en
  target_language: de
  train: [{source: train.en, target: train.de}]
  validation: {source: train.en, target: train.de}
  max_length: 60
model: {from: parent, dropout: 0.0}
training: {tokens_per_step: 100, max_steps: 1, peak_learning_rate: 1e-12}
"""
BEYOND_THE_PAPER = {
    "norm": "pre",
    "attention_biases": True,
    "output_bias": True,
    "decoder_start": "eos",
    "source_eos": False,
    "tied_embeddings": "decoder",
}
OPTIONS: dict[str, Any] = {
    "device": "cpu",
    "precision": "fp32",
}


def sentencepiece_model(words, **marks):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(words * 9),
        model_writer=model,
        vocab_size=60,
        model_type="bpe",
        hard_vocab_limit=False,
        minloglevel=2,
        **marks,
    )
    return model.getvalue()


def one_sentencepiece(normalizer):
    model = sentencepiece_model(WORDS)
    return SentencePieceTokenizer(model, normalizer, "the model"), {"tied_embeddings": "all"}


def two_sentencepieces(normalizer):
    models: dict[Side, bytes] = {
        "source": sentencepiece_model(WORDS),
        "target": sentencepiece_model(WORDS[:8]),
    }
    ids = []
    for model in models.values():
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        pieces = [processor.id_to_piece(n) for n in range(3, processor.get_piece_size())]
        ids.append({piece: n for n, piece in enumerate(["</s>", "<unk>", *pieces])})
    tokenizer = MappedSentencePieceTokenizer(models, ids[1], normalizer, "the models", ids[0])
    return tokenizer, {"source_vocabulary_size": len(ids[0])}


def two_vocabularies(normalizer, words=WORDS):
    of_source, of_target = [*CONTROL, *words], [*CONTROL, *words[3:]]
    tokenizer = WhitespaceTokenizer(of_target, normalizer, None, of_source)
    return tokenizer, {"source_vocabulary_size": len(of_source)}


def write_parent(folder, make_tokenizer=two_vocabularies):
    recipe = tiny_recipe()
    tokenizer, needed = make_tokenizer(Normalizer(recipe.data))
    sizes = {"num_layers": 1, "d_model": 20, "d_ff": 28, "num_heads": 5}
    config = ModelConfig.model_validate({**sizes, **BEYOND_THE_PAPER, **needed})
    is_whitespace = isinstance(tokenizer, WhitespaceTokenizer)
    kind = recipe.tokenizer.model_copy(
        update={"type": "whitespace" if is_whitespace else "sentencepiece"}
    )
    torch.manual_seed(5)
    parent = Transformer(config, tokenizer.size)
    with directory_appearing_whole(folder) as written_to:
        written = recipe.model_copy(update={"model": config, "tokenizer": kind})
        save_as_model(written_to, written, tokenizer, parent)
        written_to.manifest.update(kind="average")
    return tokenizer, dict(parent.named_parameters())


@pytest.fixture
def folder(toy, tmp_path, monkeypatch):
    """The current folder, with the text and the recipe, and a place for the parent."""
    monkeypatch.chdir(tmp_path)
    for side in ("en", "de"):
        lines = toy.recipe_path.with_name(f"train.{side}").read_text().splitlines(keepends=True)
        Path(f"train.{side}").write_text("".join(lines[:20]))
    Path("tune.yaml").write_text(RECIPE)
    return tmp_path


def prepare(**options):
    preprocess.run(recipe="./tune.yaml", workers=1, **options)


@pytest.mark.parametrize(
    "make_tokenizer", [one_sentencepiece, two_sentencepieces, two_vocabularies]
)
def test_text_and_weights_are_those_of_the_model(folder, make_tokenizer):
    tokenizer, weights = write_parent(folder / "parent", make_tokenizer)
    prepare()
    prepare(force=True)  # it takes the files of each tokenizer for its own
    recipe = read_recipe("./tune.yaml").recipe
    corpus = open_prepared(Path("prepared/tune"), recipe, "")
    for side, text in (("source", corpus.source), ("target", corpus.target)):
        lines = Path("train.en" if side == "source" else "train.de").read_text().splitlines()
        for number, line in enumerate(lines):
            found = text.gather(torch.tensor([number]).numpy()).tokens.tolist()
            assert found == [*tokenizer.encode(line, side), tokenizer.eos_id]
    train.run("./tune.yaml", **OPTIONS)
    average_checkpoints.run(Path("runs/tune"), last=1)
    tuned = load_model(Path("runs/tune"))
    assert tuned.settings.architecture == load_model(Path("parent")).settings.architecture
    for name, weight in tuned.model.named_parameters():
        torch.testing.assert_close(weight, weights[name], atol=1e-9, rtol=0)
    assert tuned.manifest["averaged"]


def test_a_run_goes_on_when_the_model_was_removed(folder):
    write_parent(folder / "parent")
    prepare()
    train.run("./tune.yaml", **OPTIONS)
    run.run("./tune.yaml", until="train", overrides=())  # is up to date
    shutil.rmtree("parent")
    more: dict[str, Any] = {"overrides": ["training.max_steps=2"], "resume": True}
    with pytest.raises(
        RecipeError, match=r"^tune.yaml:8: model.from: model directory parent not found; [^\n]*$"
    ):
        train.run("./tune.yaml", **OPTIONS, **more)
    with pytest.raises(RecipeError, match=r": tokenizer.model: must be a or left out beside model"):
        read_recipe("runs/tune/recipe.yaml", ["model.from=a"])
    train.run("runs/tune/recipe.yaml", **OPTIONS, **more)
    records = Path("runs/tune/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line).get("step") for line in records][-1] == 2


def test_another_model_in_the_folder_is_noticed(folder, caplog):
    write_parent(folder / "parent")
    prepare()
    shutil.rmtree("parent")
    others = [*WORDS[:5], "otter", *WORDS[6:]]
    write_parent(folder / "parent", partial(two_vocabularies, words=others))
    train.run("./tune.yaml", **OPTIONS)
    assert "vocabulary.txt and 1 more file have changed since prepared/tune was made" in caplog.text
    shutil.rmtree("parent")
    write_parent(folder / "parent", partial(two_vocabularies, words=WORDS[1:]))
    message = "^prepared/tune was made with the vocabularies of another model than parent is now. R"
    with pytest.raises(UserError, match=message):
        train.run("./tune.yaml", run_dir=Path("runs/other"), **OPTIONS)


def test_recipes_of_two_models_prepare_two_texts(folder):
    write_parent(folder / "parent")
    shutil.copytree("parent", "other")
    Path("child.yaml").write_text("extends: tune.yaml\ntraining: {seed: 2}\n")
    assert read_recipe("./child.yaml").prepared == Path("prepared/tune")
    Path("child.yaml").write_text("extends: tune.yaml\nmodel: {from: other}\n")
    assert read_recipe("./child.yaml").prepared == Path("prepared/child")


def test_inspect_counts_the_parameters_of_the_model(folder):
    _, weights = write_parent(folder / "parent")
    words = ["inspect", "./tune.yaml", "--format", "json"]
    result = CliRunner().invoke(cli.main, words)
    counted = json.loads(result.stdout)["parameters"]["total"]
    assert counted == sum(weight.numel() for weight in weights.values())


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "model.from=absent",
            "model.from: model directory absent not found; the path is relative to",
        ),
        (
            "model.from=run/average/config.json",
            "model.from: run/average/config.json is a file; give run/average",
        ),
        ("model.from=run", "model.from: run holds models; give run/average"),
        (
            "model.from=theirs",
            "model.from: theirs is not a model of nmt-cli; if it is one of another",
        ),
        ("model.from=broken", "model.from: broken/config.json is damaged: "),
        ("model.d_model=40", "model.d_model: must be 20 or left out beside model.from, but is 40"),
        ("model.source_eos=true", "model.source_eos: must be false or left out beside model.from"),
        ("tokenizer.joiner=@@", "tokenizer.joiner: must be null or left out beside model.from"),
        ("tokenizer.model=a", "tokenizer.model: must be parent or left out beside model.from, but"),
        ("data.normalization.nfc=true", "data.normalization.nfc: must be false or left out beside"),
        ("tokenizer.sampling=0.1", "tokenizer.sampling: needs type sentencepiece, but type is"),
    ],
)
def test_what_contradicts_the_model_is_refused_in_one_line(folder, override, message):
    write_parent(folder / "parent")
    shutil.copytree("parent", "run/average")
    Path("theirs").mkdir()
    Path("theirs/pytorch_model.bin").touch()
    shutil.copytree("parent", "broken")
    Path("broken/config.json").write_text("{")
    with pytest.raises(RecipeError, match=f"^--set: {re.escape(message)}[^\n]*$"):
        read_recipe("./tune.yaml", [override])
    assert read_recipe("./tune.yaml", ["model.d_model=20", "model.source_eos=false"])


def test_a_missing_model_with_a_recipe_is_named_in_whole_sentences(folder):
    end = (
        ". To make one by the recipe: nmt-cli run tune.yaml "
        "(a run that began from it goes on with its own recipe, runs/NAME/recipe.yaml)"
    )
    with pytest.raises(RecipeError, match=f"{re.escape(end)}$"):
        read_recipe("./tune.yaml", ["model.from=tune"])


def test_a_model_that_parses_is_trained_on_trees_only(folder):
    theirs = Path(__file__).parent / "formats/format_3/treebank/run/average"
    message = (
        f"--set: model.from: {theirs} is a parser, and parsers are trained on trees; give "
        "data.treebank, or name another model"
    )
    with pytest.raises(RecipeError, match=f"^{re.escape(message)}[^\n]*$"):
        read_recipe("./tune.yaml", [f"model.from={theirs}"])
    trees = ["data.treebank.notation=angles", "validation.bleu=off"]
    assert read_recipe("./tune.yaml", [f"model.from={theirs}", *trees]).recipe.data.treebank


def test_two_models_to_start_from_are_refused(folder):
    write_parent(folder / "parent")
    with pytest.raises(UserError, match=r"from parent, so that --init-from parent cannot be used"):
        train.run("./tune.yaml", init_from=Path("parent"), **OPTIONS)


def test_pieces_of_two_models_are_not_sampled(folder):
    write_parent(folder / "parent", two_sentencepieces)
    prepare()
    with pytest.raises(UserError, match="needs one SentencePiece model, but parent has two"):
        train.run("./tune.yaml", overrides=["tokenizer.sampling=0.1"], **OPTIONS)


def test_an_imported_model_learns_from_the_first_step_on(tmp_path, monkeypatch):
    if SHARED is None or not (Path(SHARED) / "ct2-aren").is_dir():
        pytest.skip("NMT_CLI_SHARED names no folder that holds ct2-aren")
    theirs = Path(SHARED).absolute() / "ct2-aren"
    monkeypatch.chdir(tmp_path)
    words = ["import", str(theirs), "--from", "ctranslate2", "--output", "parent"]
    assert CliRunner().invoke(cli.main, words).exit_code == 0
    names = {"د ا ر": "d a r", "ر م ا ن": "r a m a n", "ك ر م": "k a r a m", "س ل م": "s a l m"}
    Path("train.en").write_text("".join(f"{name}\n" for name in names))
    Path("train.de").write_text("".join(f"{name}\n" for name in names.values()))
    Path("tune.yaml").write_text(RECIPE)
    prepare()
    steps = ["training.max_steps=8", "training.warmup_steps=1", "training.peak_learning_rate=1e-3"]
    train.run("./tune.yaml", overrides=steps, **OPTIONS)
    records = map(json.loads, Path("runs/tune/metrics.jsonl").read_text().splitlines())
    losses = [record["nll"] for record in records if "gradient_norm" in record]
    assert losses[0] < math.log(load_model(Path("parent")).tokenizer.size) / 2  # a guess has 3.8
    assert losses[-1] < losses[1] < losses[0]


@pytest.mark.parametrize("kind", ["sentencepiece", "whitespace"])
@pytest.mark.parametrize("model", ["average", "checkpoints/step-00001200"])
def test_a_model_that_a_release_wrote_is_trained_further(tmp_path, monkeypatch, kind, model):
    run_of_release = FORMATS / "format_2" / kind / "run"
    monkeypatch.chdir(tmp_path)
    for side in ("en", "de"):
        shutil.copy(FORMATS / f"text/train.{side}", f"train.{side}")
    recipe = RECIPE.replace("from: parent", f"from: {run_of_release / model}")
    Path("tune.yaml").write_text(recipe.replace("max_length: 60", "max_length: 30"))
    preprocess.run(recipe="./tune.yaml")
    train.run("./tune.yaml", **OPTIONS)
    parent = load_model(run_of_release / model)
    child = load_model(Path("runs/tune"))
    assert child.settings.architecture == parent.settings.architecture
    assert child.settings.text.type == kind
    # The peak learning rate is 1e-12.
    pairs = zip(child.model.parameters(), parent.model.parameters(), strict=True)
    assert all(torch.allclose(*pair, atol=1e-9) for pair in pairs)


def test_a_run_and_a_damaged_model_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("tune.yaml").write_text(RECIPE)
    run = FORMATS / "format_2/whitespace/run"
    with pytest.raises(RecipeError, match=r"is a run, not a model directory; give .*/average"):
        read_recipe("./tune.yaml", [f"model.from={run}"])
    shutil.copytree(run / "average", "broken")
    Path("broken/config.json").write_text("{")
    with pytest.raises(RecipeError, match=r"model\.from: broken/config\.json .*; name another"):
        read_recipe("./tune.yaml", ["model.from=broken"])
