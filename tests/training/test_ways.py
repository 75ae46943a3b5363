"""The ways in which a GPU trains; the rehearsals show how they are chosen, recorded and kept."""

import re
import sys
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from nmt_cli.hardware.machine import Machine
from nmt_cli.model.layers import Residual
from nmt_cli.model.transformer import Transformer
from nmt_cli.training import ways
from nmt_cli.training.gradient import Objective
from nmt_cli.training.starting import plan_batches
from nmt_cli.training.ways import CHOICES, working_ways

(RESIDUALS,) = (each for each in CHOICES if each.name == "residuals")


class Norm(NamedTuple):
    weight: Tensor
    bias: Tensor
    epsilon: float


def right(rows, branch, drawn, norm):
    assert drawn == (0.0, None, 0) or drawn.rate == 0.1
    return F.layer_norm(rows + branch, norm.weight.shape, *norm)


def wrong(*arguments):
    return 1.2 * right(*arguments)


def without_a_number(*arguments):
    return right(*arguments) * torch.nan


def failing(*arguments):
    raise RuntimeError("out of resource:\n  shared memory")


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        (right, None),
        (wrong, r"its gradient differs by \d+\.\d%, more than 5%"),
        (without_a_number, "its gradient differs by nan%, more than 5%"),
        (failing, "RuntimeError: out of resource: shared memory"),
    ],
)
def test_a_kernel_that_fails_or_computes_something_else_is_named(
    kernel, why, toy, monkeypatch, capsys
):
    module: Any = ModuleType("residual")
    module.add_dropout_norm, module.Norm = kernel, Norm
    monkeypatch.setitem(sys.modules, "nmt_cli.model.triton_kernels.residual", module)
    monkeypatch.setattr(ways, "has_triton", lambda device: True)
    model = Transformer(toy.recipe.model, toy.corpus.tokenizer.size)
    objective = Objective(model, 1, 0.1, 1, Machine(torch.device("cpu"), "fp32"))
    found = working_ways(objective, RESIDUALS, ["torch", "triton"])
    assert found == (["torch", "triton"] if why is None else ["torch"])
    lines = capsys.readouterr().err
    sentence = "Residual sums and norms are computed by torch, not by our kernels in Triton: "
    assert lines == "" if why is None else re.search(f"{re.escape(sentence)}{why}\\.\n", lines)
    assert model.training
    assert all(weight.grad is None for weight in model.parameters())
    assert model.kernel_seed is None
    assert not any(isinstance(each, Residual) and each.kernel for each in model.modules())


def test_the_batches_that_are_timed_are_of_one_epoch(toy):
    plan = plan_batches(toy.recipe, toy.corpus)
    end = plan.batches_of(0).stop
    for first, number in ((0, 3), (end - 3, 3), (end - 2, 2), (end - 1, 1), (end, 3)):
        found = [batch.number for batch in ways._first_batches(toy.corpus, plan, first)]
        assert found == list(range(first, first + number))
