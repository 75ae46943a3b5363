"""Training in a process of its own, stopped and killed as shells and schedulers do it."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = str(Path(sys.executable).parent / "nmt-cli")


@pytest.fixture
def start(toy, tmp_path):
    """Start training the toy for many steps into tmp_path/run; end it with the test."""
    processes = []

    def call(*options):
        command = [COMMAND, "train", str(toy.recipe_path), f"--prepared={toy.prepared}"]
        command += [f"--run-dir={tmp_path / 'run'}", "--device=cpu", "--threads=1"]
        command += ["--set=training.max_steps=100000", "--set=validation.bleu=off", *options]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        processes.append(process)
        return process

    yield call
    for process in processes:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


def wait_for_checkpoint(run_dir, after=0):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        steps = [int(path.name[5:]) for path in run_dir.glob("checkpoints/step-*")]
        if max(steps, default=0) > after:
            return max(steps)
        time.sleep(0.02)
    raise TimeoutError("no checkpoint came")


def end(process, number):
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert "Traceback" not in stderr
    if number == signal.SIGKILL:  # nothing is saved now, and nothing that was is lost
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 75
        assert f"\n{number.name} stopped training at step" in stderr
        assert "Error" not in stderr


def test_a_stopped_training_saves_and_leaves_and_goes_on(start, tmp_path):
    run_dir = tmp_path / "run"
    process = start()
    wait_for_checkpoint(run_dir)
    for number in (signal.SIGTERM, signal.SIGKILL):
        end(process, number)
        last = wait_for_checkpoint(run_dir)
        process = start("--resume")
        wait_for_checkpoint(run_dir, after=last)
    end(process, signal.SIGINT)
    records = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    steps = [record["step"] for record in records if "loss" in record]
    assert steps == list(range(1, len(steps) + 1))
    assert not list(run_dir.glob("checkpoints/.*"))
