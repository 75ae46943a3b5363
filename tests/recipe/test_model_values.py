"""What a model's settings may be is checked as pydantic checks the sections of a recipe."""

import subprocess
import sys
from typing import Any

import pytest

from nmt_cli.recipe.model_values import Architecture, Decoding, TextNormalization, TreeNotation
from nmt_cli.recipe.sections.data import TreebankConfig
from nmt_cli.recipe.sections.model import DecodingConfig, ModelConfig, Normalization

SECTIONS: dict[str, tuple[Any, Any]] = {
    "architecture": (Architecture, ModelConfig),
    "decoding": (Decoding, DecodingConfig),
    "normalization": (TextNormalization, Normalization),
    "trees": (TreeNotation, TreebankConfig),
}
GIVEN = [
    ("architecture", {"num_layers": 1000, "norm_epsilon": 1, "activation": "gelu"}),
    ("architecture", {"d_k": 3, "d_v": None, "d_model": 7, "positions": "learned"}),
    ("architecture", {"num_layers": 0}),
    ("architecture", {"num_layers": 1001}),
    ("architecture", {"num_layers": True}),
    ("architecture", {"num_layers": 2.0}),
    ("architecture", {"num_layers": [2]}),
    ("architecture", {"d_k": 0}),
    ("architecture", {"norm_epsilon": 0}),
    ("architecture", {"norm_epsilon": float("nan")}),
    ("architecture", {"norm_epsilon": 2}),
    ("architecture", {"activation": "tanh"}),
    ("architecture", {"activation": ["relu"]}),
    ("architecture", {"source_eos": 1}),
    ("architecture", {"another": 1}),
    ("architecture", {"d_model": 10}),
    ("architecture", {"d_model": 5, "num_heads": 5}),
    ("architecture", {"decoder_num_heads": 3}),
    ("architecture", {"source_vocabulary_size": 7}),
    ("architecture", {"source_vocabulary_size": 7, "tied_embeddings": "none"}),
    ("architecture", {"positions": "learned", "first_position": 1}),
    ("architecture", {"positions": "learned", "sinusoid_frequencies": "tensor2tensor"}),
    ("decoding", {"beam_size": 1000, "length_penalty": 10, "max_extra_length": 0}),
    ("decoding", {"beam_size": 0}),
    ("decoding", {"length_penalty": -0.1}),
    ("decoding", {"length_penalty": float("inf")}),
    ("trees", {"notation": "slashes", "closing": "plain"}),
    ("trees", {"tags": "yy"}),
    ("normalization", {"nfc": True}),
    ("normalization", {"nfc": "yes"}),
]


def problem_of(make, values):
    try:
        make(**values)
    except ValueError as error:
        return error
    return None


@pytest.mark.parametrize(("section", "values"), GIVEN)
def test_values_are_refused_that_a_recipe_cannot_have(section, values):
    ours, of_recipe = SECTIONS[section]
    refused = problem_of(ours, values)
    assert (refused is None) == (problem_of(of_recipe, values) is None)
    assert refused is None or any(name in str(refused) for name in values)


@pytest.mark.parametrize("section", SECTIONS)
def test_what_is_not_given_has_the_default_of_a_recipe(section):
    ours, of_recipe = SECTIONS[section]
    found = {key: getattr(of_recipe(), key) or False for key in vars(ours())}
    assert found == {key: value or False for key, value in vars(ours()).items()}


def test_values_cannot_be_changed_but_copied_with_others():
    values = Decoding(beam_size=3)
    with pytest.raises(AttributeError):
        values.beam_size = 2
    other = values.changed(length_penalty=1.0)
    assert (other.beam_size, other.length_penalty, values.length_penalty) == (3, 1.0, 0.6)
    assert values == Decoding(beam_size=3) != other
    assert hash(values) == hash(Decoding(beam_size=3))


def test_settings_are_read_without_pydantic():
    code = "import sys, nmt_cli.recipe.model_settings; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
