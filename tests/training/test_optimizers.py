"""Trainings by every optimizer: resumed, on several ranks, and read late as on a GPU."""

import json
import re
from types import MappingProxyType
from typing import Any

import pytest
import torch

from nmt_cli.launch.stop_signals import StopRequest
from nmt_cli.messages.errors import UserError
from nmt_cli.saved.checkpoints import list_checkpoints
from nmt_cli.saved.training_state import load_newest
from nmt_cli.training.batch_cut import BatchCut
from nmt_cli.training.starting import plan_batches
from tests.forked_ranks import run_ranks
from tests.trainers import changed, new_trainer, read_at_once, weights_of

WSD: dict[str, Any] = {"schedule": "wsd", "stable_steps": 3, "decay_steps": 6, "max_steps": 9}
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
    late = trained(toy, tmp_path / "late", training)
    at_once = new_trainer(toy, tmp_path / "at once", recipe_of(toy, training), TWO_PIECES)
    read_at_once(at_once)
    at_once.train(StopRequest())
    assert torch.equal(weights_of(late), weights_of(at_once))


COSINE: dict[str, Any] = {"schedule": "cosine", "max_steps": None}
SCHEDULES = [COSINE, {**WSD, "max_steps": None}]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=["cosine", "wsd"])
def test_a_rate_that_becomes_0_before_max_epochs_is_refused_and_both_advices_help(
    toy, tmp_path, schedule
):
    tokens = {"tokens_per_step": 60, "decay_steps": 6, "max_epochs": 2}
    with pytest.raises(UserError) as caught:
        trained(toy, tmp_path / "run", {**schedule, **tokens})
    assert not list((tmp_path / "run").iterdir())
    found = re.fullmatch(
        r"training\.max_epochs 2 has at least (\d+) steps of this text, but the learning rate "
        r"becomes 0 at step (\d+) \(warmup_steps \+ (?:stable_steps \+ )?decay_steps\); raise "
        r"training\.decay_steps to about (\d+), or set training\.max_steps to (\d+)\.",
        str(caught.value),
    )
    assert found is not None
    least, end, decay, max_steps = map(int, found.groups())
    assert end == max_steps == (8 if schedule is COSINE else 11)
    epochs = plan_batches(recipe_of(toy, tokens), toy.corpus).batches_of(1).stop
    assert 0.8 * epochs < least <= epochs
    trainer = trained(toy, tmp_path / "a", {**schedule, **tokens, "max_steps": max_steps})
    assert trainer.state.progress.step == end
    trainer = trained(toy, tmp_path / "b", {**schedule, **tokens, "decay_steps": decay})
    assert trainer.state.progress.step == least


@pytest.mark.parametrize("schedule", SCHEDULES, ids=["cosine", "wsd"])
def test_training_ends_where_the_rate_becomes_0(toy, tmp_path, schedule):
    """A little before the end of the last epoch, which its tokens do not show."""
    tokens = {"tokens_per_step": 60, "max_epochs": 1}
    num_batches = len(plan_batches(recipe_of(toy, tokens), toy.corpus).batches_of(0))
    others = 2 + schedule.get("stable_steps", 0)
    keys = {**schedule, **tokens, "decay_steps": num_batches - 1 - others}
    trainer = trained(toy, tmp_path / "run", keys)
    records = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    *rates, last = [record["learning_rate"] for record in records if "learning_rate" in record]
    assert len(rates) == num_batches - 2
    assert min(rates) > last == 0
    reason = "because the learning rate became 0 (training.warmup_steps + "
    assert reason in trainer.training.summary()
    resumed = new_trainer(toy, tmp_path / "run", recipe_of(toy, keys), TWO_PIECES, resume=True)
    assert resumed.training.is_complete()


def test_the_moments_of_another_optimizer_are_not_taken(toy, tmp_path, capsys):
    trained(toy, tmp_path / "run", MUON)
    state = new_trainer(toy, tmp_path / "other", recipe_of(toy, ADAMW)).state
    with pytest.raises(UserError, match="no undamaged checkpoint to resume from"):
        load_newest(tmp_path / "run", state)
    assert "exp_avg" in capsys.readouterr().err
    assert len(list_checkpoints(tmp_path / "run")) == 2
