"""Validation BLEU of a model that repeats its input: perfect where the target is the source."""

import pytest
import torch

from nmt_cli.commands import preprocess
from nmt_cli.corpus.prepared import open_prepared
from nmt_cli.corpus.tokenizers.sentence_marks import start_id
from nmt_cli.hardware.machine import Machine
from nmt_cli.launch.stop_signals import StopRequest
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe.reader import read_recipe
from nmt_cli.search import engine
from nmt_cli.training.gradient import Objective
from nmt_cli.training.validation import Validator
from tests.conftest import RECIPE
from tests.fake_models import CopyModel

MACHINE = Machine(torch.device("cpu"), "fp32")
IN_PIECES = ["the lo@@ w@@ est house falls", "a  wid@@ er mo@@ on shines", "it ra@@ ins to@@ day"]
RAW = ["the lowest house falls", "a wider moon shines", "it rains today"]


@pytest.mark.parametrize(
    ("lines", "tokenizer"),
    [
        (IN_PIECES, 'tokenizer={type: whitespace, joiner: "@@"}'),
        (IN_PIECES, "tokenizer={type: whitespace}"),
        (RAW, "tokenizer={type: sentencepiece, vocabulary_size: 285}"),
    ],
)
def test_a_perfect_translation_scores_100(tmp_path, monkeypatch, lines, tokenizer):
    for name in ("train", "validation"):
        for side in ("en", "de"):
            (tmp_path / f"{name}.{side}").write_text("".join(f"{line}\n" for line in lines))
    path, prepared = tmp_path / "toy.yaml", tmp_path / "prepared"
    path.write_text(RECIPE.format(folder=tmp_path))
    preprocess.run(recipe=str(path), overrides=[tokenizer], output=prepared, workers=1)
    recipe = read_recipe(str(path), [tokenizer]).recipe
    corpus = open_prepared(prepared, recipe, "toy")
    size = corpus.tokenizer.size
    monkeypatch.setattr(engine, "CachedTransformer", lambda _: CopyModel(size))
    model = Transformer(recipe.model, size)
    objective = Objective(model, start_id(model.config, corpus.tokenizer), 0.1, 1, MACHINE)
    validation = Validator(recipe, corpus, objective).validate(200, StopRequest())
    assert validation is not None
    assert validation.bleu == pytest.approx(100.0)
