"""A disk that fills up: what was saved stays, training goes on, and the third failure ends it."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from tests.faults.faults import fail_at, fault, limit_file_size
from tests.faults.run_directories import (
    End,
    are_equal,
    check_same_end,
    check_whole,
    checkpoints,
    end_of,
    leftovers,
)
from tests.faults.trainings import Fault, Trainings

# Steps 8 and 12 are saved; the disk fills up between them and step 4.
FULL, FREE = 7, 10


def check_full_disk(
    trainings: Trainings, folder: Path, expected: End, largest: int, share: float
) -> None:
    """Limit the size of files for a while; expect the undisturbed end."""
    run_dir, snapshot = folder / f"run{share}", folder / f"snapshot{share}"
    limit = int(largest * share)
    disk = fault(
        limit_file_size,
        run_dir=str(run_dir), limit=limit, first=FULL, last=FREE, snapshot=str(snapshot),
    )  # fmt: skip
    ended = trainings.run(run_dir, faults=[disk])
    assert ended.status == 0, ended.stderr
    assert "step-00000008 could not be written: File too large." in ended.stderr
    assert "Training goes on" in ended.stderr
    found = checkpoints(snapshot)
    assert 4 in found
    assert 8 not in found
    for checkpoint in found.values():
        check_whole(checkpoint)
    assert leftovers(snapshot) == []
    end = end_of(run_dir)
    assert end.weights == expected.weights
    assert are_equal(end.state, expected.state)
    trainings.finish(snapshot)
    check_resumed(snapshot, expected)
    shutil.rmtree(run_dir)


def check_resumed(run_dir: Path, expected: End) -> None:
    """Assert the same end, except for lines that the full disk kept out of the log."""
    for checkpoint in checkpoints(run_dir).values():
        check_whole(checkpoint)
    end = end_of(run_dir)
    assert end.weights == expected.weights
    assert are_equal(end.state, expected.state)
    assert all(record in expected.steps for record in end.steps)


@pytest.fixture(scope="module")
def largest(undisturbed_dir: Path) -> int:
    """Bytes of the largest file of a checkpoint."""
    return max(path.stat().st_size for path in undisturbed_dir.glob("checkpoints/*/*"))


@pytest.mark.parametrize("position", range(5))
def test_a_disk_that_is_full_for_a_while_stops_nothing(
    trainings, tmp_path, undisturbed, largest, position
):
    check_full_disk(trainings, tmp_path, undisturbed, largest, position / 5)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_wherever_the_disk_ends_nothing_stops(trainings, tmp_path, undisturbed, largest, part):
    for position in range(part, 40, 4):
        check_full_disk(trainings, tmp_path, undisturbed, largest, position / 40)


def check_third_failure(trainings: Trainings, folder: Path, expected: End, *more: Fault) -> None:
    """Let no file grow past 2,000 bytes; assert that the third failed save ends training."""
    run_dir = folder / "run"
    frequent = trainings.with_overrides("checkpoints.every_steps=2")
    disk = fault(
        limit_file_size, run_dir=str(run_dir), limit=2_000, first=FULL, last=None, snapshot=""
    )
    ended = frequent.run(run_dir, faults=[disk, *more])
    assert ended.status == 74, ended.stderr
    assert ended.stderr.count("Training goes on") == 2
    last = ended.stderr.splitlines()[-1]
    assert last == (
        f"Error: {run_dir}/checkpoints/step-00000012 could not be written: File too large. "
        f"Nothing half-written was left. Step 6 is the last that is saved in {run_dir}, and "
        "training ends 6 steps later: raise the limit of file sizes (ulimit -f), then run the "
        "same command with --resume."
    )
    assert max(checkpoints(run_dir)) == 6
    check_whole(checkpoints(run_dir)[6])
    assert leftovers(run_dir) == []
    frequent.finish(run_dir)
    check_resumed(run_dir, expected)


def test_the_third_failure_in_a_row_ends_training(trainings, tmp_path, undisturbed):
    check_third_failure(trainings, tmp_path, undisturbed)


def test_a_status_that_cannot_be_written_hides_no_error(trainings, toy, tmp_path, undisturbed):
    """The last message of a training on a full disk is about its checkpoint."""
    failing = fault(
        fail_at,
        run_dir=str(tmp_path / "run"), prepared=str(toy.prepared),
        point="middle write run/.partial-status.json", nth=2, error=errno.ENOSPC,
    )  # fmt: skip
    check_third_failure(trainings, tmp_path, undisturbed, failing)


WRITES = [
    "before mkdir run/checkpoints/.partial-step",
    "middle write run/checkpoints/.partial-step/recipe.yaml",
    "middle write run/checkpoints/.partial-step/vocabulary.txt",
    "middle write run/checkpoints/.partial-step/model.safetensors",
    "middle write run/checkpoints/.partial-step/training_state.pt",
    "middle write run/checkpoints/.partial-step/manifest.json",
    "before fsync run/checkpoints/.partial-step/training_state.pt",
    "before fsync run/checkpoints/.partial-step",
    "before rename run/checkpoints/.partial-step to run/checkpoints/step",
]


def check_failed_write(
    trainings: Trainings, prepared: Path, folder: Path, expected: End, point: str, error: int
) -> None:
    """Let a system call of a save fail; expect a warning and the undisturbed end."""
    run_dir = folder / "run"
    failing = fault(
        fail_at, run_dir=str(run_dir), prepared=str(prepared), point=point, nth=2, error=error
    )
    ended = trainings.run(run_dir, faults=[failing])
    assert ended.status == 0, ended.stderr
    assert f"could not be written: {os.strerror(error)}." in ended.stderr
    assert "Training goes on" in ended.stderr
    check_same_end(run_dir, expected)


def test_a_write_of_the_training_state_may_fail(trainings, toy, tmp_path, undisturbed):
    """torch.save replaces the OSError by an error of its own."""
    check_failed_write(trainings, toy.prepared, tmp_path, undisturbed, WRITES[4], errno.ENOSPC)


@pytest.mark.slow
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("point", WRITES)
def test_every_write_of_a_checkpoint_may_fail(trainings, toy, tmp_path, undisturbed, point, error):
    check_failed_write(trainings, toy.prepared, tmp_path, undisturbed, point, error)
