"""Training with weights and activations rounded to int8."""

import pytest
import torch
from torch.nn import functional as F

from nmt_cli.hardware.machine import Machine
from nmt_cli.hardware.ranks import ALONE
from nmt_cli.launch.stop_signals import StopRequest
from nmt_cli.messages.errors import InterruptedTrainingError
from nmt_cli.training import validation
from nmt_cli.training.batch_cut import BatchCut
from nmt_cli.translating.translator import Translator
from tests.forked_ranks import run_ranks
from tests.trainers import StopAfter, changed, new_trainer, weights_of


@pytest.fixture
def recipe(toy):
    return changed(
        toy.recipe,
        training={"max_steps": 6, "quantization_aware": "int8", "clip_norm": 0.5},
        validation={"every_steps": 6, "bleu": "off"},
    )


def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(toy, recipe, tmp_path):
    whole = new_trainer(toy, tmp_path / "whole", recipe)
    whole.train(StopRequest())
    parts = new_trainer(toy, tmp_path / "parts", recipe)
    with pytest.raises(InterruptedTrainingError):
        parts.train(StopAfter(parts, 4))
    resumed = new_trainer(toy, tmp_path / "parts", recipe, resume=True)
    resumed.train(StopRequest())
    assert torch.equal(weights_of(resumed), weights_of(whole))
    plain = new_trainer(
        toy, tmp_path / "plain", changed(recipe, training={"quantization_aware": None})
    )
    plain.train(StopRequest())
    difference = (weights_of(plain) - weights_of(whole)).abs().max()
    assert 0 < difference < 0.1


def test_two_ranks_train_as_one(toy, recipe, tmp_path):
    recipe = changed(recipe, model={"dropout": 0.0}, training={"max_steps": 3})

    def train(ranks):
        run_dir = tmp_path / str(ranks.size)
        trainer = new_trainer(toy, run_dir, recipe, BatchCut(60, 2), ranks)
        trainer.train(StopRequest())
        return weights_of(trainer)

    alone = train(ALONE)
    one, other = run_ranks(2, tmp_path, train)
    assert torch.equal(one, other)
    assert torch.allclose(one, alone, atol=1e-5)


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("bf16", 0.01)])
def test_the_loss_is_that_of_what_the_model_projects(toy, recipe, tmp_path, precision, tolerance):
    trainer = new_trainer(toy, tmp_path / "run", recipe)
    engine = trainer.training.engine
    model, (pairs,) = engine.model.eval(), next(trainer._batches()).micro_batches
    tensors = engine.on_cpu(pairs)
    logits = model.project(model(tensors.source, tensors.target_input))
    expected = F.cross_entropy(logits, tensors.target_output, label_smoothing=0.1, reduction="sum")
    found = engine._replace(machine=Machine(torch.device("cpu"), precision)).losses(tensors).loss
    assert found.item() == pytest.approx(expected.item(), rel=tolerance)
    of_torch = torch.autograd.grad(expected, model.output_weight)[0]
    (own,) = torch.autograd.grad(found, model.output_weight)
    assert F.cosine_similarity(own.flatten(), of_torch.flatten(), 0) > 1 - tolerance


def test_validation_translates_in_int8(toy, recipe, tmp_path, monkeypatch, library):
    del library  # skips where the library could not be built
    made = []

    def noted(*arguments, **options):
        made.append(Translator(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(validation, "Translator", noted)
    recipe = changed(recipe, validation={"bleu": "greedy"})
    new_trainer(toy, tmp_path / "run", recipe).train(StopRequest())
    assert [each.chosen["precision"] for each in made] == ["int8"]
