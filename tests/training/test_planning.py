"""A resumed training whose recipe plans other batches goes on at the same place of the text."""

import json

import numpy as np
import pytest
import torch

from nmt_cli.corpus.batching import LAST_BATCHES, BatchPlan
from nmt_cli.hardware.ranks import ALONE
from nmt_cli.launch.stop_signals import StopRequest
from nmt_cli.messages import logs
from nmt_cli.saved.checkpoints import list_checkpoints
from nmt_cli.saved.training_state import Progress
from nmt_cli.training.starting import move_to_plan, plan_batches
from tests.forked_ranks import run_ranks
from tests.trainers import changed, new_trainer, weights_of

LENGTHS = np.random.default_rng(1).integers(2, 30, 700).astype(np.uint16)


def new_plan(tokens_per_step, seed=1):
    return BatchPlan(LENGTHS, LENGTHS, tokens_per_step, seed)


def epoch_ends(plan, num_epochs):
    """Return the batches up to each epoch's end, found by counting pairs."""
    ends: list[int] = []
    pairs = index = 0
    while len(ends) < num_epochs:
        pairs += len(plan.batch(index))
        index += 1
        if pairs == len(LENGTHS) * (len(ends) + 1):
            ends.append(index)
    return ends


def moved(batch_index, old, new, skipped=()):
    progress = Progress(step=9, batch_index=batch_index, skipped=list(skipped))
    move_to_plan(progress, old, new)
    return progress


@pytest.mark.parametrize(("before", "after"), [(100, 400), (400, 100), (100, 110)])
def test_a_batch_of_another_plan_keeps_its_epoch_and_its_share(before, after):
    old, new = new_plan(before), new_plan(after)
    old_ends, new_ends = [0, *epoch_ends(old, 3)], [0, *epoch_ends(new, 3)]
    for epoch in range(3):
        num_old = old_ends[epoch + 1] - old_ends[epoch]
        num_new = new_ends[epoch + 1] - new_ends[epoch]
        for used in range(num_old):
            place = moved(old_ends[epoch] + used, old, new).batch_index - new_ends[epoch]
            assert 0 <= place < num_new
            assert (place == 0) == (used == 0)  # an epoch's beginning stays one, and no other is
            assert abs(place / num_new - used / num_old) <= 1 / num_new


def test_an_epoch_of_one_batch_is_neither_left_out_nor_repeated_often():
    old, new = new_plan(100), new_plan(100_000)
    (end, second_end) = epoch_ends(old, 2)
    assert [moved(i, old, new).batch_index for i in (1, end - 1, end, second_end)] == [0, 0, 1, 2]


def test_skipped_batches_keep_their_distance():
    old, new = new_plan(100), new_plan(400)
    progress = moved(50, old, new, skipped=[12, 48, 49])
    assert [progress.batch_index - index for index in progress.skipped] == [38, 2, 1]


def trained(toy, run_dir, recipe, ranks=ALONE, *, resume=False):
    trainer = new_trainer(toy, run_dir, recipe, ranks=ranks, resume=resume)
    trainer.train(StopRequest())
    return weights_of(trainer)


def batch_indices(run_dir):
    records = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    return [record["batch_index"] for record in records if "batch_index" in record]


def test_resuming_with_other_tokens_per_step_stays_in_the_epoch(toy, tmp_path, capsys):
    lengths = toy.corpus.source.lengths, toy.corpus.target.lengths
    num_old, num_new = (len(BatchPlan(*lengths, t, 1).batches_of(0)) for t in (60, 240))
    stopped_at = num_old // 2
    start = {"tokens_per_step": 60, "max_steps": stopped_at}
    trained(toy, tmp_path, changed(toy.recipe, training=start))
    logs.configure(quiet=False)
    end = {"tokens_per_step": 240, "max_epochs": 1, "max_steps": 999}
    trained(toy, tmp_path, changed(toy.recipe, training=end), resume=True)
    half = num_new // 2
    assert batch_indices(tmp_path) == [*range(stopped_at), *range(half, num_new)]
    assert (
        f"The changed recipe plans other batches: {stopped_at} of the {num_old} batches of epoch 1 "
        f"were used, and training goes on after {half} of its {num_new} new ones."
    ) in capsys.readouterr().err


def epochs_planned_by(work):
    """Return what ``work()`` returns, and the numbers of the epochs that were planned for it."""
    numbers, plan_epoch = [], BatchPlan._plan_epoch

    def noted(plan, number, *new_order):
        numbers.append(number)
        return plan_epoch(plan, number, *new_order)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BatchPlan, "_plan_epoch", noted)
        return work(), set(numbers)


@pytest.mark.parametrize(
    ("end", "planned"),
    [
        ({"max_epochs": 2}, {0, 1}),
        ({"max_steps": "border"}, {0}),
        ({"max_epochs": 2, "max_steps": "border"}, {0}),
        ({"max_epochs": 1, "max_steps": 99}, {0}),
    ],
)
def test_no_epoch_is_planned_after_the_end(toy, tmp_path, end, planned):
    tokens = {"tokens_per_step": 240, "max_steps": None}
    num_batches = len(plan_batches(changed(toy.recipe, training=tokens), toy.corpus).batches_of(0))
    end = {key: num_batches if value == "border" else value for key, value in end.items()}
    recipe = changed(toy.recipe, validation={"bleu": "off"}, training={**tokens, **end})

    def work():
        trainer = new_trainer(toy, tmp_path, recipe)
        trainer.train(StopRequest())
        return trainer.state.progress.step

    steps, found = epochs_planned_by(work)
    assert (steps, found) == (num_batches * len(planned), planned)


def test_no_epoch_is_planned_to_find_a_run_finished(toy, tmp_path):
    recipe = changed(toy.recipe, validation={"bleu": "off"}, training={"max_steps": 3})
    trained(toy, tmp_path, recipe)

    def work():
        return new_trainer(toy, tmp_path, recipe, resume=True).training.is_complete()

    assert epochs_planned_by(work) == (True, set())


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_a_resumed_run_plans_only_the_epochs_that_it_uses(toy, tmp_path, num_ranks):
    recipe = changed(toy.recipe, validation={"bleu": "off"}, training={"tokens_per_step": 240})
    num_batches = len(plan_batches(recipe, toy.corpus).batches_of(0))
    stop, end = 3 * num_batches - 1, 3 * num_batches + 1  # in epoch 2 and in epoch 3

    def train_to(max_steps, run_dir):
        until = changed(recipe, training={"max_steps": max_steps})

        def on_rank(ranks):
            return trained(toy, run_dir, until, ranks, resume=bool(list_checkpoints(run_dir)))

        return run_ranks(num_ranks, tmp_path, lambda r: epochs_planned_by(lambda: on_rank(r)))

    expected = [weights for weights, _ in train_to(end, tmp_path / "whole")]
    train_to(stop, tmp_path / "run")
    found = train_to(end, tmp_path / "run")
    for (weights, _), whole in zip(found, expected, strict=True):
        assert torch.equal(weights, whole)
    planned = set.union(*(epochs for _, epochs in found))
    assert planned == {2, 3}
    assert batch_indices(tmp_path / "run") == batch_indices(tmp_path / "whole")


@pytest.mark.parametrize(
    "refused", [None, "NodeMemory.join", "NodeMemory.offer", "os.memfd_create", "fcntl.flock"]
)
def test_ranks_of_one_machine_plan_once_if_they_can(toy, tmp_path, monkeypatch, refused):
    recipe = changed(toy.recipe, training={"tokens_per_step": 60, "max_steps": 3})

    def refuse(*_):
        raise PermissionError(13, "Permission denied", "some file")

    def on_rank(ranks):
        if refused is not None and ranks.rank == 1:
            monkeypatch.setattr(f"nmt_cli.corpus.node_memory.{refused}", refuse)
        warnings: list[str] = []
        monkeypatch.setattr(logs, "warning", warnings.append)
        weights, epochs = epochs_planned_by(lambda: trained(toy, tmp_path / "run", recipe, ranks))
        return weights, epochs, warnings

    (first, epochs, warnings), (second, other_epochs, _) = run_ranks(2, tmp_path, on_rank)
    assert torch.equal(first, second)
    assert len(plan_batches(recipe, toy.corpus).batches_of(0)) > LAST_BATCHES
    assert sorted([*epochs, *other_epochs]) == ([0] if refused is None else [0, 0])
    expected = "rank 1 plans the batches in memory of its own, because it cannot share memory with "
    reason = "(some file: Permission denied)."
    found = [expected in warning and warning.endswith(reason) for warning in warnings]
    assert found == [True] * (refused is not None)


def test_the_plan_that_counts_is_that_of_the_checkpoint_and_not_of_the_last_start(toy, tmp_path):
    def finish(tokens_per_step, **training):
        recipe = changed(toy.recipe, training={"tokens_per_step": tokens_per_step, **training})
        trained(toy, tmp_path, recipe, resume=bool(list_checkpoints(tmp_path)))
        return batch_indices(tmp_path)[-1]

    finish(60, max_steps=8)
    finish(240, max_steps=8)  # saves nothing, because the end was reached
    assert finish(60, max_steps=9) == 8


def test_all_ranks_agree_on_the_place_in_another_plan(toy, tmp_path):
    first = changed(toy.recipe, training={"tokens_per_step": 60, "max_steps": 7})
    then = changed(toy.recipe, training={"tokens_per_step": 240, "max_steps": 9})
    trained(toy, tmp_path / "run", first)
    weights = run_ranks(
        2, tmp_path, lambda ranks: trained(toy, tmp_path / "run", then, ranks, resume=True)
    )
    assert torch.equal(*weights)
    lengths = toy.corpus.source.lengths, toy.corpus.target.lengths
    num_old, num_new = (len(BatchPlan(*lengths, t, 1).batches_of(0)) for t in (60, 240))
    place = round(7 * num_new / num_old)
    assert batch_indices(tmp_path / "run")[7:] == [place, place + 1]
