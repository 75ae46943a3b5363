"""Models that eole made compute the same here."""

from pathlib import Path

import pytest

from nmt_cli.saved.model_directory import load_model
from tests.interchange.import_command import assert_same_scores, run_import
from tests.interop.own_environment import python_with, run_script

HERE = Path(__file__).parent
MODELS = ["separate", "shared", "learned"]
# What its modules import beside the packages of our environment.
PACKAGES = ("pyonmttok==1.38.1", "huggingface_hub", "tokenizers", "rich")


def same_as_eole(folder, output):
    assert_same_scores(folder, folder / "scores.json", output)


@pytest.mark.parametrize("name", MODELS)
def test_log_probabilities_are_those_that_eole_computed(tmp_path, name):
    same_as_eole(HERE / "eole" / name, tmp_path / "ours")


def test_the_options_are_those_of_the_models(tmp_path):
    found = {}
    for name in MODELS:
        run_import(HERE / "eole" / name, "--output", tmp_path / name, program="eole")
        found[name] = load_model(tmp_path / name).settings.architecture.options
    always = {"source_eos": False}
    separate = {"source_vocabulary_size": 16, "output_bias": True}
    assert found["separate"] == {
        **always, **separate, "activation": "gelu", "norm_epsilon": 1e-3, "attention_biases": True,
        "decoder_num_layers": 2, "decoder_d_ff": 7, "decoder_num_heads": 3,
    }  # fmt: skip
    assert found["shared"] == {
        **always, "activation": "swish", "sinusoid_frequencies": "tensor2tensor",
        "decoder_start": "eos", "feed_forward_biases": False,
    }  # fmt: skip
    assert found["learned"] == {
        **always, **separate, "activation": "gelu_tanh", "scale_embeddings": False,
    }  # fmt: skip


@pytest.mark.slow  # installs eole
@pytest.mark.timeout(900)
def test_new_models_of_eole(tmp_path):
    python = python_with(tmp_path / "environment", "eole==0.6.4", *PACKAGES)
    run_script(python, HERE / "eole_models.py", tmp_path / "made")
    for name in MODELS:
        same_as_eole(tmp_path / "made" / name, tmp_path / name)
