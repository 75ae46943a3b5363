"""The backends that train on a GPU; the rehearsals show how they are chosen, recorded and kept."""

import re

import pytest
import torch

from nmt_cli.hardware.machine import Machine
from nmt_cli.model.layers import Residual
from nmt_cli.model.transformer import Transformer
from nmt_cli.training import backend_choice
from nmt_cli.training.backend_choice import PARTS, working_backends
from nmt_cli.training.gradient.engine import GradientEngine
from nmt_cli.training.starting import plan_batches
from tests import kernels_in_torch
from tests.kernels_in_torch import add_dropout_norm

(RESIDUALS,) = (each for each in PARTS if each.name == "residuals")


def wrong(*arguments):
    return 1.2 * add_dropout_norm(*arguments)


def without_a_number(*arguments):
    return add_dropout_norm(*arguments) * torch.nan


def failing(*arguments):
    raise RuntimeError("out of resource:\n  shared memory")


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        (add_dropout_norm, None),
        (wrong, r"the (result|gradient) of \S+ is off by 20\.\d%, torch's by \d\.\d%"),
        (without_a_number, r"the result of \S+ is off by nan%, torch's by \d\.\d%"),
        (failing, "RuntimeError: out of resource: shared memory"),
    ],
)
def test_a_kernel_that_fails_or_computes_something_else_is_named(
    kernel, why, toy, monkeypatch, capsys
):
    kernels_in_torch.bring(monkeypatch, add_dropout_norm=kernel)
    monkeypatch.setattr(backend_choice, "has_triton", lambda device: True)
    model = Transformer(toy.recipe.model, toy.corpus.tokenizer.size)
    engine = GradientEngine.of(model, 1, 0.1, 1, Machine(torch.device("cpu"), "fp32"))
    found = working_backends(engine, RESIDUALS, ["torch", "triton"])
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
        found = [batch.number for batch in backend_choice._first_batches(toy.corpus, plan, first)]
        assert found == list(range(first, first + number))
