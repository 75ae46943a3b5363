"""Trainings by every optimizer: resumed, on several ranks, and read late as on a GPU."""

from types import MappingProxyType

import pytest
import torch

from nmt_cli.checkpoints import list_checkpoints
from nmt_cli.launch.stop_signals import StopRequest
from nmt_cli.messages.errors import UserError
from nmt_cli.runs.checkpoint import load_newest
from nmt_cli.training.batch_cut import BatchCut
from tests.forked_ranks import run_ranks
from tests.trainers import changed, new_trainer, weights_of

WSD = {"schedule": "wsd", "stable_steps": 3, "decay_steps": 6, "max_steps": 9}
ADAMW = {"optimizer": "adamw", "weight_decay": 0.1, **WSD}
TWO_PIECES = BatchCut(60, 2)  # micro-batches a step
MUON = {"optimizer": "muon", "weight_decay": 0.1, **WSD}


def recipe_of(toy, training, model=MappingProxyType({})):
    return changed(
        toy.recipe,
        model=dict(model),
        training={"warmup_steps": 2, **training},
        validation={"every_steps": 9, "bleu": "off"},
        checkpoints={"every_steps": 5},
    )


def trained(toy, run_dir, training, model=MappingProxyType({}), **options):
    recipe = recipe_of(toy, training, model)
    trainer = new_trainer(toy, run_dir, recipe, TWO_PIECES, **options)
    trainer.train(StopRequest())
    return trainer


@pytest.mark.parametrize("training", [ADAMW, MUON], ids=["adamw", "muon"])
def test_a_resumed_training_equals_an_uninterrupted_one(toy, tmp_path, training):
    whole = trained(toy, tmp_path / "whole", training)
    trained(toy, tmp_path / "run", {**training, "max_steps": 5})
    resumed = trained(toy, tmp_path / "run", training, resume=True)
    assert resumed.state.progress.step == 9
    assert torch.equal(weights_of(resumed), weights_of(whole))
    optimizers = resumed.state.optimizer, whole.state.optimizer
    for found, expected in zip(*(each.parameters() for each in optimizers), strict=True):
        moments = optimizers[1].state[expected]
        assert moments.keys() == {"step", *optimizers[1].moments_of(expected)}
        assert all(torch.equal(optimizers[0].state[found][n], m) for n, m in moments.items())


@pytest.mark.parametrize("model", [{}, {"decoder": "ssru", "attention_window": 1}])
def test_two_ranks_train_by_muon_as_one_also_when_they_resume(toy, tmp_path, model):
    def work(ranks):
        whole = trained(toy, tmp_path / "whole", MUON, model, ranks=ranks)
        trained(toy, tmp_path / "run", {**MUON, "max_steps": 5}, model, ranks=ranks)
        resumed = trained(toy, tmp_path / "run", MUON, model, ranks=ranks, resume=True)
        return weights_of(whole), weights_of(resumed)

    alone = weights_of(trained(toy, tmp_path / "alone", MUON, model))
    found = [weights for of_rank in run_ranks(2, tmp_path, work) for weights in of_rank]
    assert all(torch.equal(weights, found[0]) for weights in found)
    assert torch.allclose(found[0], alone, atol=1e-4)


@pytest.mark.parametrize("training", [ADAMW, MUON], ids=["adamw", "muon"])
def test_a_training_read_late_leaves_the_same_behind(toy, tmp_path, training):
    at_once = trained(toy, tmp_path / "at once", training)
    late = new_trainer(toy, tmp_path / "late", recipe_of(toy, training), TWO_PIECES)
    late.reads_late = True
    late.train(StopRequest())
    assert torch.equal(weights_of(late), weights_of(at_once))


def test_the_moments_of_another_optimizer_are_not_taken(toy, tmp_path, capsys):
    trained(toy, tmp_path / "run", MUON)
    state = new_trainer(toy, tmp_path / "other", recipe_of(toy, ADAMW)).state
    with pytest.raises(UserError, match="no undamaged checkpoint to resume from"):
        load_newest(tmp_path / "run", state)
    assert "exp_avg" in capsys.readouterr().err
    assert len(list_checkpoints(tmp_path / "run")) == 2
