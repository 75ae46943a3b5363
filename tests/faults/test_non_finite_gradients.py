"""NaN and infinity in a gradient: the batch is skipped, the weights stay, too many end training."""

import itertools
import json

import pytest

from tests.faults.conftest import MAX_STEPS
from tests.faults.faults import fault, log_updates, spoil_gradients
from tests.faults.run_directories import check_whole, checkpoints, step_records

NAMES = ["nan", "inf", "-inf"]


def check_skipped(trainings, folder, undisturbed, batches, value):
    """Spoil some batches; assert that they are skipped and change nothing bit for bit."""
    run_dir, log = folder / "run", folder / "updates"
    faults = [
        fault(spoil_gradients, batches=batches, value=value),
        fault(log_updates, output=str(log)),
    ]
    ended = trainings.run(run_dir, faults=faults)
    assert ended.status == 0, ended.stderr
    used = [record["batch_index"] for record in step_records(run_dir)]
    assert used == [i for i in range(MAX_STEPS + len(batches)) if i not in batches]
    assert [record["step"] for record in step_records(run_dir)] == list(range(1, MAX_STEPS + 1))
    for batch in batches:
        assert f"batch {batch} " in ended.stderr
    updates = [json.loads(line) for line in log.read_text().splitlines()]
    for (_, after), (before, _) in itertools.pairwise(updates):
        assert after == before
    changed = [number for number, (before, after) in enumerate(updates) if before != after]
    assert changed == used
    same = min(batches)
    for found, wanted in zip(step_records(run_dir)[:same], undisturbed.steps, strict=False):
        assert found["loss"] == wanted["loss"]
    for checkpoint in checkpoints(run_dir).values():
        check_whole(checkpoint)


@pytest.mark.parametrize("value", NAMES)
def test_a_batch_without_a_finite_gradient_changes_nothing(trainings, tmp_path, undisturbed, value):
    check_skipped(trainings, tmp_path, undisturbed, [5, 6, 11], value)


def check_ten_in_a_row(trainings, folder):
    """Spoil every batch from the tenth on; assert that training ends with the reason."""
    run_dir = folder / "run"
    spoiled = fault(spoil_gradients, batches=list(range(9, 99)), value="nan")
    ended = trainings.run(run_dir, faults=[spoiled])
    assert ended.status == 1
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("Error: training diverged: 10 of the last")
    assert "learning" in last
    assert "Traceback" not in ended.stderr
    assert step_records(run_dir)[-1]["step"] == 9
    assert max(checkpoints(run_dir)) <= 9
    for checkpoint in checkpoints(run_dir).values():
        check_whole(checkpoint)


def test_ten_in_a_row_end_training_with_an_explanation(trainings, tmp_path):
    check_ten_in_a_row(trainings, tmp_path)


def test_a_skipped_batch_stays_skipped_after_a_kill(trainings, tmp_path):
    """Skipping is part of the state: batch 5 is not tried again after the checkpoint of step 8."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    spoiled = fault(spoil_gradients, batches=[5], value="nan")
    assert trainings.run(whole, faults=[spoiled]).status == 0
    shorter = trainings.with_overrides("training.max_steps=8")
    assert shorter.run(killed, faults=[spoiled]).status == 0
    trainings.finish(killed)
    assert [r["batch_index"] for r in step_records(killed)] == [
        r["batch_index"] for r in step_records(whole)
    ]
    last = "checkpoints/step-00000014/model.safetensors"
    assert (killed / last).read_bytes() == (whole / last).read_bytes()
