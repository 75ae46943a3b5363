"""Faults while a thread writes a checkpoint and training goes on, as on a GPU."""

import errno
import signal

import pytest

from tests.faults.faults import fault, save_in_thread, signal_at
from tests.faults.run_directories import check_same_end, check_whole, checkpoints
from tests.faults.test_full_disk import WRITES, check_failed_write
from tests.faults.test_kill_points import check_kills

STATE = "run/checkpoints/.partial-step/training_state.pt"
POINTS = [
    *WRITES,
    "after rename run/checkpoints/.partial-step to run/checkpoints/step",
    "before rename run/checkpoints/step to run/checkpoints/.delete-step",
    "before unlink run/checkpoints/step/training_state.pt",
    "before unlink run/checkpoints/.delete-step/file",
]


@pytest.fixture(scope="module")
def in_thread(trainings):
    return trainings.with_faults(fault(save_in_thread))


def test_kills_while_a_thread_writes_change_nothing(in_thread, toy, tmp_path, undisturbed):
    check_kills(in_thread, toy.prepared, tmp_path, undisturbed, POINTS)


def test_a_write_of_the_thread_may_fail(in_thread, toy, tmp_path, undisturbed):
    point = f"middle write {STATE}"
    check_failed_write(in_thread, toy.prepared, tmp_path, undisturbed, point, errno.ENOSPC)


def test_a_signal_while_the_thread_writes_stops_a_training_that_is_saved(
    in_thread, toy, tmp_path, undisturbed
):
    run_dir = tmp_path / "run"
    stop = fault(
        signal_at,
        run_dir=str(run_dir), prepared=str(toy.prepared), point=f"middle write {STATE}", nth=2,
        numbers=[int(signal.SIGTERM)],
    )  # fmt: skip
    ended = in_thread.run(run_dir, faults=[stop])
    assert ended.status == 75, ended.stderr
    last = max(checkpoints(run_dir))
    assert f"stopped training at step {last}; it was saved" in ended.stderr
    for checkpoint in checkpoints(run_dir).values():
        check_whole(checkpoint)
    in_thread.finish(run_dir)
    check_same_end(run_dir, undisturbed)
