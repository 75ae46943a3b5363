"""Counts by formula, against the parameters of the model itself and Table 3 of the paper."""

import pytest
import torch

from nmt_cli.costs.parameters import count_parameters
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe.model_config import ModelConfig


def small(**changes):
    settings = {"num_layers": 2, "d_model": 20, "d_ff": 28, "num_heads": 5, "max_positions": 31}
    return ModelConfig(**settings | changes)


def built(config):
    with torch.device("meta"):
        return Transformer(config, vocabulary_size=37)


def size_of(module):
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_each_part_is_that_of_the_model(norm):
    config = small(norm=norm, positions="learned", tied_embeddings="decoder", d_k=3, d_v=7)
    model, counted = built(config), count_parameters(config, 37)
    for layers, last, stack in (
        (model.encoder_layers, model.encoder_norm, counted.encoder),
        (model.decoder_layers, model.decoder_norm, counted.decoder),
    ):
        parts = {
            name: sum(size_of(getattr(layer, name)) for layer in layers if hasattr(layer, name))
            for name in ("self_attention", "memory_attention", "feed_forward")
        }
        assert stack._asdict() | parts == stack._asdict()
        assert stack.total == size_of(layers) + size_of(last)
    embeddings = (model.source_embedding, model.target_embedding)
    assert counted.positions == sum(size_of(side.positions) for side in embeddings)
    assert counted.embeddings == model.source_embedding.weight.numel() + model.output_weight.numel()


@pytest.mark.parametrize(
    ("config", "millions"),
    [(ModelConfig(), 65), (ModelConfig(d_model=1024, d_ff=4096, num_heads=16), 213)],
)
def test_the_papers_models_have_the_papers_parameters(config, millions):
    assert count_parameters(config, 37_000).total == pytest.approx(millions * 1e6, rel=0.05)
