"""Weights that are not drawn: the generator is untouched, and all parameters are there."""

import pytest
import torch
from torch import nn

from nmt_cli.model.skip_init import SkipInit
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe.sections.model import ModelConfig

SMALL = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 12}


@pytest.mark.parametrize("changes", [{}, {"positions": "learned", "tied_embeddings": "none"}])
def test_a_model_is_made_without_drawing_a_number(changes):
    config = ModelConfig.model_validate(SMALL | changes)
    expected = {name: each.shape for name, each in Transformer(config, 11).named_parameters()}
    torch.manual_seed(5)
    before = torch.get_rng_state()
    with SkipInit():
        model = Transformer(config, 11)
        nn.Embedding(3, 4), nn.Linear(3, 4)
    assert torch.equal(torch.get_rng_state(), before)
    assert {name: each.shape for name, each in model.named_parameters()} == expected


def test_other_functions_compute():
    with SkipInit():
        assert nn.LayerNorm(4).weight.tolist() == [1.0] * 4
        assert torch.ones(2).add_(1).sum() == 4
