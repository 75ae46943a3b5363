"""Our Adam is torch's, with weight decay for matrices alone."""

from typing import Any

import pytest
import torch

from nmt_cli.optimization import Adam, new_optimizer
from nmt_cli.recipe.sections.training import TrainingConfig

SETTINGS: dict[str, Any] = {"lr": 0.01, "betas": (0.9, 0.98), "eps": 1e-9, "fused": True}


def new_model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.LayerNorm(3))


def trained(model, optimizer, steps=5):
    """Return the parameters after some steps."""
    torch.manual_seed(2)
    for _ in range(steps):
        model(torch.randn(4, 5)).square().sum().backward()
        optimizer.step()
        model.zero_grad()
    return [parameter.detach() for parameter in model.parameters()]


def equal(found, expected):
    return all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


def test_it_takes_the_steps_of_torchs_adam():
    ours, theirs = new_model(), new_model()
    found = trained(ours, Adam(ours.parameters(), **SETTINGS))
    assert equal(found, trained(theirs, torch.optim.Adam(theirs.parameters(), **SETTINGS)))


@pytest.mark.parametrize(
    ("name", "theirs"), [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)]
)
def test_weights_decay_as_torchs_do_but_norms_and_biases_do_not(name, theirs):
    model, expected = new_model(), new_model()
    optimizer = new_optimizer(model, TrainingConfig(optimizer=name, weight_decay=0.5))
    for group in optimizer.param_groups:
        group["lr"] = SETTINGS["lr"]
    linear, norm = expected
    groups = [
        {"params": [linear.weight], "weight_decay": 0.5},
        {"params": [linear.bias, norm.weight, norm.bias], "weight_decay": 0.0},
    ]
    found = trained(model, optimizer)
    assert equal(found, trained(expected, theirs(groups, **SETTINGS)))
    without = new_model()
    trained(without, new_optimizer(without, TrainingConfig()))
    assert not torch.equal(found[0], without[0].weight)
