"""Models that OpenNMT-py made compute the same here."""

from pathlib import Path

import pytest

from nmt_cli.saved.model_directory import load_model
from tests.interchange.import_command import assert_same_scores, run_import
from tests.interop.own_environment import python_with, run_script

HERE = Path(__file__).parent
MODELS = ["separate", "shared", "half"]
# What its modules import beside the packages of our environment.
PACKAGES = (
    *("--only-binary=:all:", "pyonmttok==1.38.1", "configargparse", "six", "spacy", "rapidfuzz"),
    *("pyahocorasick", "fasttext-wheel"),
)


def same_as_opennmt(checkpoint, output):
    assert_same_scores(checkpoint, checkpoint.with_suffix(".json"), output)


@pytest.mark.parametrize("name", MODELS)
def test_log_probabilities_are_those_that_opennmt_computed(tmp_path, name):
    same_as_opennmt(HERE / f"opennmt/{name}.pt", tmp_path / "ours")


def test_the_options_are_those_of_the_models(tmp_path):
    found = {}
    for name in MODELS:
        checkpoint = HERE / f"opennmt/{name}.pt"
        run_import(checkpoint, "--output", tmp_path / name, program="opennmt-py")
        found[name] = load_model(tmp_path / name).settings.architecture.options
    always = {"source_eos": False, "output_bias": True}
    separate = {**always, "source_vocabulary_size": 16, "norm_epsilon": 1e-6}
    assert found["separate"] == {
        **separate, "activation": "gelu", "attention_biases": True, "decoder_num_layers": 2,
    }  # fmt: skip
    assert found["shared"] == {
        **always, "norm_epsilon": 1e-3, "sinusoid_frequencies": "tensor2tensor",
        "decoder_start": "eos", "feed_forward_biases": False,
    }  # fmt: skip
    assert found["half"] == separate


@pytest.mark.slow  # installs OpenNMT-py
@pytest.mark.timeout(900)
def test_new_models_of_opennmt(tmp_path):
    python = python_with(tmp_path / "environment", "OpenNMT-py==3.5.1", *PACKAGES)
    run_script(python, HERE / "opennmt_models.py", tmp_path / "made")
    for name in MODELS:
        same_as_opennmt(tmp_path / f"made/{name}.pt", tmp_path / name)
