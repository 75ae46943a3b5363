"""A long training that is stopped and killed in turn, at whatever it does just then."""

import os
import signal
import time

from tests.faults.run_directories import checkpoints, leftovers, step_records


def wait_for_checkpoint(run_dir, after=0):
    """Wait for a checkpoint of a later step; return its step."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        last = max(checkpoints(run_dir), default=0)
        if last > after:
            return last
        time.sleep(0.02)
    raise TimeoutError("no checkpoint came")


def end(command, number, run_dir):
    os.kill(command.pid, number)
    ended = command.wait()
    assert "Traceback" not in ended.stderr
    if number == signal.SIGKILL:  # nothing is saved now, and nothing that was is lost
        assert ended.status == -signal.SIGKILL
    else:
        assert ended.status == 75
        assert f"\n{number.name} stopped training at step" in ended.stderr
        assert "Error" not in ended.stderr
        assert max(checkpoints(run_dir)) == step_records(run_dir)[-1]["step"]


def test_a_stopped_training_saves_and_leaves_and_goes_on(trainings, tmp_path):
    long = trainings.with_overrides("training.max_steps=2000", "validation.bleu=off")
    run_dir, last = tmp_path / "run", 0
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT):
        command = long.start(run_dir, "--resume")
        wait_for_checkpoint(run_dir, after=last)
        end(command, number, run_dir)
        last = wait_for_checkpoint(run_dir, after=last)
    steps = [record["step"] for record in step_records(run_dir)]
    assert steps == list(range(1, len(steps) + 1))
    assert not leftovers(run_dir)
