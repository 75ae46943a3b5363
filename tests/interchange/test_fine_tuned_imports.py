"""A model of CTranslate2 is imported, trained further, exported and imported again."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.interchange.ctranslate2.exporter import ctranslate2_variables, vocabulary_of
from nmt_cli.interchange.exported_model import ExportedModel
from nmt_cli.saved.model_directory import load_model
from tests.architectures import random_model
from tests.interchange.ctranslate2_files import binary, variables_of, write_folder

TOKENS = [*(f"t{number}" for number in range(27)), "</s>", "<s>", "<unk>"]
RECIPE = """\
description: An imported model that learns to copy.
data:
  source_language: en
  target_language: de
  train: [{source: text, target: text}]
  validation: {source: text, target: text}
  max_length: 30
model: {from: parent, dropout: 0.0}
training: {tokens_per_step: 60, max_steps: 10, warmup_steps: 1, peak_learning_rate: 3e-3}
"""


def run(*words):
    result = CliRunner().invoke(cli.main, list(words))
    assert result.exit_code == 0, result.output


def import_again(loaded, folder, **config):
    """Write the exported variables of a model as CTranslate2 does, and import them."""
    exported = ExportedModel.of(loaded)
    options = {key: each for key, each in variables_of(loaded.model).items() if not np.ndim(each)}
    vocabularies = {
        "source": vocabulary_of(exported.source_pieces),
        "target": vocabulary_of(exported.pieces),
    }
    content = binary({**options, **ctranslate2_variables(exported)})
    write_folder(Path(f"{folder}-ct2"), content, vocabularies, **config)
    run("import", f"{folder}-ct2", "--from", "ctranslate2", "--output", folder)
    return load_model(Path(folder))


@pytest.mark.parametrize(
    "options",
    [
        {"tied_embeddings": "all"},
        {"norm": "pre", "tied_embeddings": "none", "output_bias": True, "activation": "gelu"},
    ],
)
def test_export_and_import_keep_what_an_imported_model_learned(tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    model = random_model(options, len(TOKENS)).eval()
    config = {
        "layer_norm_epsilon": model.config.norm_epsilon,
        "add_source_eos": model.config.source_eos,
    }
    write_folder(Path("theirs"), binary(variables_of(model)), {"shared": TOKENS}, **config)
    run("import", "theirs", "--output", "parent")
    Path("text").write_text("".join(f"t{n} t{n + 3} t{n + 1}\n" for n in range(12)))
    Path("tune.yaml").write_text(RECIPE)
    run("preprocess", "./tune.yaml", "--workers", "1")
    run("train", "./tune.yaml", "--device", "cpu", "--precision", "fp32")
    records = map(json.loads, Path("runs/tune/metrics.jsonl").read_text().splitlines())
    losses = [record["nll"] for record in records if "gradient_norm" in record]
    assert losses[-1] < losses[0] - 0.3
    parent, tuned = load_model(Path("parent")), load_model(Path("runs/tune"))
    again = import_again(tuned, "again", **config)
    assert again.settings.architecture == tuned.settings.architecture
    for side in ("source", "target"):
        every = range(tuned.tokenizer.size)
        assert again.tokenizer.pieces(every, side) == tuned.tokenizer.pieces(every, side)
    before, learned = (dict(each.model.named_parameters()) for each in (parent, tuned))
    found = dict(again.model.named_parameters())
    assert found.keys() == learned.keys()
    for name, weight in learned.items():
        assert torch.equal(found[name], weight), name
    assert not torch.equal(before["output_weight"], learned["output_weight"])
