"""Models that fairseq made compute the same here."""

from pathlib import Path

import pytest

from nmt_cli.saved.model_directory import load_model
from tests.interchange.import_command import assert_same_scores, run_import
from tests.interop.own_environment import python_with, run_script

HERE = Path(__file__).parent
MODELS = ["half", "learned", "old", "post"]
# What its modules import beside the packages of our environment.
PACKAGES = (
    "omegaconf==2.3.0",
    "hydra-core==1.3.2",
    "bitarray",
    "scikit-learn",
    "sacrebleu",
    "tqdm",
)


def same_as_fairseq(folder, output):
    assert_same_scores(folder, folder / "scores.json", output)


@pytest.mark.parametrize("name", MODELS)
def test_log_probabilities_are_those_that_fairseq_computed(tmp_path, name):
    same_as_fairseq(HERE / "fairseq" / name, tmp_path / "ours")


def test_the_options_are_those_of_the_models(tmp_path):
    found = {}
    for name in MODELS:
        run_import(HERE / "fairseq" / name, "--output", tmp_path / name, program="fairseq")
        found[name] = load_model(tmp_path / name).settings
    always = {"decoder_start": "eos", "attention_biases": True}
    sinusoids = {"sinusoid_frequencies": "tensor2tensor", "first_position": 2}
    separate = {"source_vocabulary_size": 16}
    options = {name: settings.architecture.options for name, settings in found.items()}
    post = {"decoder_num_heads": 3, "decoder_d_ff": 14, "decoder_num_layers": 1}
    assert options["post"] == options["old"] == {**always, **sinusoids, **separate, **post}
    pre = {"decoder_num_heads": 2, "activation": "gelu_tanh"}
    assert options["half"] == {**always, **sinusoids, **pre}
    learned = {"activation": "gelu", "embedding_norm": True, "scale_embeddings": False}
    assert options["learned"] == {**always, **separate, **learned}
    assert found["half"].architecture.norm == "pre"
    assert found["learned"].architecture.max_positions == 30
    ties = {name: settings.architecture.tied_embeddings for name, settings in found.items()}
    assert ties == {"half": "all", "learned": "decoder", "old": "none", "post": "none"}
    assert {settings.text.joiner for settings in found.values()} == {"@@"}


@pytest.mark.slow  # installs fairseq, which is built from source
@pytest.mark.timeout(1800)
def test_new_models_of_fairseq(tmp_path):
    python = python_with(tmp_path / "environment", "fairseq-fixed==0.12.3.1", *PACKAGES)
    run_script(python, HERE / "fairseq_models.py", tmp_path / "made")
    for name in MODELS:
        same_as_fairseq(tmp_path / "made" / name, tmp_path / name)
