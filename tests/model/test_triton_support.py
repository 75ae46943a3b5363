"""Models whose gradients are computed by our kernels, against the same models by torch."""

import pytest
import torch

from nmt_cli.model.packing import pack
from nmt_cli.model.transformer import Transformer, round_to_int8
from nmt_cli.model.triton_support import use_kernels
from nmt_cli.recipe.sections.model import ModelConfig
from tests.kernels_in_triton import DEVICE, MARKS

pytestmark = MARKS

LENGTHS, VOCABULARY = ([7, 1, 15], [9, 2, 10]), 11


def model_of(**changes):
    torch.manual_seed(1)
    shape = {"d_model": 32, "d_ff": 48, "num_heads": 2, "num_layers": 1, "dropout": 0.0}
    return Transformer(ModelConfig(**{**shape, **changes}), VOCABULARY).to(DEVICE).train()


def rows_of(model):
    return model(*(pack(torch.arange(sum(each)) % VOCABULARY, each, DEVICE) for each in LENGTHS))


def gradients(model):
    rows = rows_of(model)
    direction = torch.linspace(-1, 1, rows.numel(), device=DEVICE).view_as(rows)
    weights = list(model.parameters())
    return [rows, *torch.autograd.grad((rows.float() * direction).sum(), weights)]


@pytest.mark.parametrize(
    "changes", [{}, {"norm": "pre", "d_v": 8}, {"attention_window": 3, "decoder": "ssru"}]
)
def test_a_model_by_kernels_is_the_model_by_torch(changes):
    model = model_of(**changes)
    expected = gradients(model)
    for used in (True, False):
        use_kernels(model, used=used)
        for ours, theirs in zip(gradients(model), expected, strict=True):
            assert torch.allclose(ours, theirs, atol=2e-5 if used else 0.0)


def test_draws_follow_from_the_seed_and_differ_from_layer_to_layer():
    model = model_of(dropout=0.4, attention_dropout=0.2)
    use_kernels(model, used=True)
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(rows_of(model))
    assert torch.equal(found[0], found[1])
    assert not torch.allclose(found[0], found[2], atol=0.1)
    places = [module.kernel.number for module in model.modules() if hasattr(module, "kernel")]
    assert len(set(places)) == len(places) == 3 + 5


@pytest.mark.parametrize(
    ("norm", "rounds", "are_joined"),
    [
        ("post", False, True),
        ("post", True, False),
        ("pre", False, False),
    ],
)
def test_products_add_to_the_gradient_of_a_sum_only_where_its_rows_are_multiplied(
    norm, rounds, are_joined
):
    model = model_of(norm=norm)
    if rounds:
        round_to_int8(model)
    use_kernels(model, used=True)
    found = [module.is_joined for module in model.modules() if hasattr(module, "is_joined")]
    assert found == [are_joined] * 5
    use_kernels(model, used=False)
    assert not any(getattr(module, "is_joined", False) for module in model.modules())
