"""What computes gradients on a GPU; the rehearsals show how it is chosen, recorded and kept."""

import re

import pytest
import torch

from nmt_cli.hardware.machine import Machine
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.model.transformer import Transformer
from nmt_cli.training import kernel_choice
from nmt_cli.training.batch_cut import BatchCut
from nmt_cli.training.gradient import kernel_trials
from nmt_cli.training.gradient.engine import GradientEngine
from nmt_cli.training.starting import plan_batches
from tests import kernels_in_torch
from tests.kernels_in_torch import add_dropout_norm

CPU = torch.device("cpu")


def wrong(*arguments):
    return 1.2 * add_dropout_norm(*arguments)


def without_a_number(*arguments):
    return add_dropout_norm(*arguments) * torch.nan


def failing(*arguments):
    raise RuntimeError("out of resource:\n  shared memory")


@pytest.fixture
def engine(toy, monkeypatch):
    """An engine for a CPU that has kernels, which are stand-ins in torch."""
    logs.configure(quiet=False)
    monkeypatch.setattr(kernel_choice, "has_triton", lambda device: True)
    monkeypatch.setattr(kernel_trials, "LENGTHS", (20, 33))
    model = Transformer(toy.recipe.model, toy.corpus.tokenizer.size)
    return GradientEngine.of(model, 1, 0.1, 1, Machine(CPU, "fp32"))


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        (add_dropout_norm, None),
        (wrong, r"the (result|gradient) of [^%]+ is off by 20\.\d%, torch's by \d\.\d%"),
        (without_a_number, r"the result of the residual sum is off by nan%, torch's by \d\.\d%"),
        (failing, "RuntimeError: out of resource: shared memory"),
    ],
)
def test_a_kernel_that_fails_or_computes_something_else_is_named(
    kernel, why, engine, monkeypatch, capsys
):
    kernels_in_torch.bring(monkeypatch, add_dropout_norm=kernel)
    found = kernel_choice._why_not_ours(engine)
    lines = capsys.readouterr().err
    if why is None:
        assert found is None
        figure = r"the largest of their errors is \d\d% of what is allowed \(the .*%\)\.\n"
        assert re.fullmatch(f"Our kernels in Triton were tried: {figure}", lines)
    else:
        assert found is not None
        assert re.fullmatch(why, found)
        assert lines == ""
    assert all(weight.grad is None for weight in engine.model.parameters())
    torchs = engine.with_kernels("torch")
    assert torchs.model.kernel_seed is None
    assert not any(getattr(each, "kernel", None) for each in torchs.model.modules())


class OnGpu:
    """The device of an engine whose choice is on a GPU, though it computes on a CPU."""

    type = "cuda"


def choose(engine, toy, before=None, **flags):
    machine = engine.machine._replace(device=OnGpu(), **flags)
    engine = engine._replace(machine=machine)
    plan = plan_batches(toy.recipe, toy.corpus)
    return kernel_choice.choose_kernels(engine, toy.corpus, plan, 0, BatchCut(80), before).kernels


@pytest.fixture
def untried(monkeypatch):
    """Let a choice need no GPU: note what is tried and timed."""
    done = []

    def tried(engine):
        done.append("tried")

    def timed(*_):
        done.append("timed")
        return "ours"

    monkeypatch.setattr(kernel_choice, "_why_not_ours", tried)
    monkeypatch.setattr(kernel_choice, "_faster", timed)
    monkeypatch.setattr(
        GradientEngine, "with_kernels", lambda engine, kernels: engine._replace(kernels=kernels)
    )
    return done


@pytest.mark.parametrize(
    ("flags", "before", "found", "done"),
    [
        ({}, None, "ours", ["tried", "timed"]),
        ({"kernels": "ours"}, None, "ours", ["tried"]),
        ({"kernels": "torch"}, {"kernels": "ours"}, "torch", []),
        ({"is_deterministic": True}, {"kernels": "ours"}, "torch", []),
        ({}, {"kernels": "ours"}, "ours", ["tried"]),
        ({}, {"kernels": "torch"}, "torch", []),
        ({}, {"kernels": "others"}, "ours", ["tried", "timed"]),
        ({}, {"precision": "bf16"}, "ours", ["tried", "timed"]),  # a checkpoint of a CPU
    ],
)
def test_flags_come_before_the_checkpoint_and_both_before_a_measurement(
    flags, before, found, done, engine, toy, untried, capsys
):
    assert choose(engine, toy, before, **flags) == found
    assert untried == done
    assert capsys.readouterr().err == ""


def test_a_checkpoint_that_names_each_part_resumes_with_a_new_choice(engine, toy, untried, capsys):
    before = {"attention": "triton", "launches": "rooms", "residuals": "torch", "loss": "triton"}
    assert choose(engine, toy, before) == "ours"
    assert untried == ["tried", "timed"]
    assert "names kernels for each part of the gradient" in capsys.readouterr().err


def test_kernels_that_fail_are_not_taken_unless_they_are_asked_for(
    engine, toy, untried, monkeypatch, capsys
):
    monkeypatch.setattr(kernel_choice, "_why_not_ours", lambda _: "the result is off by 20.0%")
    assert choose(engine, toy) == "torch"
    assert capsys.readouterr().err == (
        "Warning: Gradients are computed by torch's kernels: the result is off by 20.0%.\n"
    )
    with pytest.raises(UserError, match=r"--kernels ours cannot be used: the result is off by 20"):
        choose(engine, toy, kernels="ours")


def test_a_cpu_has_no_choice(engine, toy):
    plan = plan_batches(toy.recipe, toy.corpus)
    rest = (toy.corpus, plan, 0, BatchCut(80))
    assert kernel_choice.choose_kernels(engine, *rest) is engine
    asked = engine._replace(machine=engine.machine._replace(kernels="torch"))
    with pytest.raises(UserError, match=r"--kernels is for GPUs, the device is cpu; leave it out"):
        kernel_choice.choose_kernels(asked, *rest)


def test_the_batches_that_are_timed_are_of_one_epoch(toy):
    plan = plan_batches(toy.recipe, toy.corpus)
    end = plan.batches_of(0).stop
    for first, number in ((0, 3), (end - 3, 3), (end - 2, 2), (end - 1, 1), (end, 3)):
        found = [batch.number for batch in kernel_choice._first_batches(toy.corpus, plan, first)]
        assert found == list(range(first, first + number))
