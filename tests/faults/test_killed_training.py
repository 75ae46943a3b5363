"""SIGKILL at random moments: nothing that was saved is lost, and the end is the undisturbed one."""

import random
from collections import Counter
from pathlib import Path

import pytest

from nmt_cli.corpus.batching import BatchPlan
from tests.conftest import ToyExperiment
from tests.faults.conftest import SAVE_EVERY
from tests.faults.run_directories import (
    End,
    check_same_end,
    check_whole,
    checkpoints,
    end_of,
    is_resumable,
    step_records,
)
from tests.faults.test_kill_points import kill
from tests.faults.trainings import Trainings


def check_random_kills(
    trainings: Trainings, folder: Path, expected: End, lifetime: float, num_kills: int, seed: int
) -> None:
    """Kill and resume trainings, so many times; assert that each ends as ``expected``.

    Each process lives for a random share of ``lifetime``, in seconds.
    """
    chance = random.Random(seed)
    kills = finished = 0
    while kills < num_kills:
        run_dir = folder / f"run{finished}"
        saved, is_finished = 0, False
        while kills < num_kills and not is_finished:
            ended = trainings.start(run_dir, "--resume").kill_after(chance.uniform(0, lifetime))
            assert ended.status in (0, -9), ended.stderr
            is_finished = ended.status == 0
            kills += ended.status == -9
            saved = check_nothing_is_lost(run_dir, saved)
        trainings.finish(run_dir)
        check_same_end(run_dir, expected)
        finished += 1


def check_nothing_is_lost(run_dir: Path, saved: int) -> int:
    """Assert that a killed run can go on from where it should; return the step it saved last."""
    found = checkpoints(run_dir)
    for checkpoint in found.values():
        check_whole(checkpoint)
    last = max((step for step in found if is_resumable(found[step])), default=0)
    assert last >= saved, f"the checkpoint of step {saved} is lost"
    logged = max((record["step"] for record in step_records(run_dir)), default=0)
    assert logged - last <= SAVE_EVERY, f"step {logged} was made, {last} is saved"
    return last


def test_random_kills_change_nothing(trainings, tmp_path, undisturbed, lifetime):
    check_random_kills(trainings, tmp_path, undisturbed, lifetime, 10, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(5))
def test_many_random_kills_change_nothing(trainings, tmp_path, undisturbed, lifetime, seed):
    check_random_kills(trainings, tmp_path, undisturbed, lifetime, 40, seed)


def check_sentences(toy: ToyExperiment, tokens_per_step: int, batch_indices: list[int]) -> int:
    """Assert that the batches hold each pair once in every epoch; return the number of epochs."""
    source, target = toy.corpus.source.lengths, toy.corpus.target.lengths
    plan = BatchPlan(source, target, tokens_per_step, seed=1)
    epochs: dict[int, Counter[int]] = {}
    for batch_index in batch_indices:
        epoch, _ = plan.locate(batch_index)
        epochs.setdefault(epoch, Counter()).update(plan.batch(batch_index).tolist())
    once = Counter(range(len(source)))
    assert all(pairs == once for pairs in epochs.values())
    return len(epochs)


def test_every_sentence_comes_once_in_an_epoch_under_kills(trainings, toy, tmp_path):
    """Ten kills in two epochs of about 32 batches; no batch is lost or repeated."""
    frequent = trainings.with_overrides(
        "training.max_steps=9999", "training.max_epochs=2", "training.tokens_per_step=32",
        "validation.bleu=off", "checkpoints.every_steps=3",
    )  # fmt: skip
    run_dir = tmp_path / "run"
    chance = random.Random(3)
    for _ in range(10):
        assert kill(frequent, toy.prepared, run_dir, "before update", chance.randint(3, 8))
    frequent.finish(run_dir)
    indices = [record["batch_index"] for record in end_of(run_dir).steps]
    assert check_sentences(toy, 32, indices) == 2
