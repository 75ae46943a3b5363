"""Counts by formula, against the parameters of the model itself and Table 3 of the paper.

The memory of a training, against tensors that torch really keeps.
"""

import pytest
import torch

from nmt_cli.costs.parameters import (
    activation_bytes_per_token,
    count_parameters,
    parameter_shapes,
    training_memory,
)
from nmt_cli.model.transformer import Transformer
from nmt_cli.optimization import new_optimizer
from nmt_cli.recipe.sections.model import ModelConfig
from nmt_cli.recipe.sections.training import TrainingConfig
from tests.architectures import OPTION_SETS, config_of


def small(**changes):
    settings = {"num_layers": 2, "d_model": 20, "d_ff": 28, "num_heads": 5, "max_positions": 31}
    return ModelConfig(**settings | changes)


def built(config):
    with torch.device("meta"):
        return Transformer(config, vocabulary_size=37)


@pytest.mark.parametrize("options", OPTION_SETS)
def test_names_shapes_and_their_order_are_those_of_the_model(options):
    model, shapes = built(config_of(options)), parameter_shapes(config_of(options), 37)
    assert [*shapes.items()] == [(name, each.shape) for name, each in model.named_parameters()]
    counted = count_parameters(config_of(options), 37)
    assert counted.total == size_of(model)


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
        assert sum(stack) == size_of(layers) + size_of(last)
    embeddings = (model.source_embedding, model.target_embedding)
    assert counted.positions == sum(size_of(side.positions) for side in embeddings)
    assert counted.embeddings == model.source_embedding.weight.numel() + model.output_weight.numel()


@pytest.mark.parametrize(
    ("config", "millions"),
    [(ModelConfig(), 65), (ModelConfig(d_model=1024, d_ff=4096, num_heads=16), 213)],
)
def test_the_papers_models_have_the_papers_parameters(config, millions):
    assert count_parameters(config, 37_000).total == pytest.approx(millions * 1e6, rel=0.05)


CONFIG = ModelConfig(num_layers=2, d_model=48, d_ff=96, num_heads=4, dropout=0.1)


def saved_bytes(model, source, target):
    """Return the bytes of all tensors that a forward pass keeps for the backward pass."""
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = (storage.nbytes(), tensor)  # kept alive, so that no two are one
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(source, target)
    parameters = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    return sum(size for place, (size, _) in kept.items() if place not in parameters)


def test_adam_keeps_two_moments_and_the_average_one_more_copy():
    model = Transformer(CONFIG, 37)
    optimizer = torch.optim.Adam(model.parameters())
    torch.cat([parameter.flatten() for parameter in model.parameters()]).sum().backward()
    optimizer.step()
    count = count_parameters(CONFIG, 37).total
    memory = training_memory(CONFIG, count, 100, 9, has_moving_average=True)
    moments = [
        state[name].nbytes
        for state in optimizer.state.values()
        for name in ("exp_avg", "exp_avg_sq")
    ]
    weights = sum(parameter.nbytes for parameter in model.parameters())
    assert memory[:4] == (weights, weights, sum(moments), weights)
    assert memory.activations == 100 * activation_bytes_per_token(CONFIG, 9)
    plain = training_memory(CONFIG, count, 100, 9, has_moving_average=False)
    assert sum(plain) == sum(memory) - weights


def test_muon_keeps_one_moment_of_a_matrix():
    config = CONFIG.model_copy(update={"attention_biases": True, "feed_forward_biases": True})
    model = Transformer(config, 37)
    optimizer = new_optimizer(model, TrainingConfig(optimizer="muon"))
    optimizer.make_moments()
    moments = [
        optimizer.state[parameter][name].nbytes
        for parameter in model.parameters()
        for name in optimizer.moments_of(parameter)
    ]
    count = count_parameters(config, 37).total
    memory = training_memory(config, count, 9, 9, has_moving_average=False, optimizer="muon")
    assert memory.moments == sum(moments) < 2 * memory.weights


def test_long_sentences_keep_more_attention_weights():
    short, long = (activation_bytes_per_token(CONFIG, keys) for keys in (10, 5_000))
    weights = CONFIG.num_layers * 3 * CONFIG.num_heads * 4  # three attentions of a layer, in fp32
    assert short < long < short + 5_000 * weights
