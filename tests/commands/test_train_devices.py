"""Training by several processes of the real command: started, stopped, killed, restarted."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from nmt_cli.commands import train
from nmt_cli.files.atomic_files import verify
from nmt_cli.launch.stop_signals import StopRequest
from nmt_cli.messages.errors import UserError
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.saved.checkpoints import list_checkpoints
from tests.commands.conftest import FP32
from tests.forked_ranks import free_port, run_ranks
from tests.saved_weights import read_weights
from tests.trainers import new_trainer

MAX_STEPS = 150
SETTINGS = ["validation.every_steps=50", "validation.bleu=off"]
OPTIONS = [
    "--device=cpu",
    "--precision=fp32",
    "--threads=1",
    "--max-tokens-per-device=120",
]
LAUNCHER = (sys.executable, "-m", "nmt_cli")
PATIENCE = 100.0  # seconds


class Training:
    """One start of the command on two processes."""

    def __init__(self, toy, run_dir, *options, launcher=LAUNCHER, max_steps=MAX_STEPS, env=None):
        settings = [f"--set={s}" for s in (*SETTINGS, f"training.max_steps={max_steps}")]
        command = [*launcher, "train", str(toy.recipe_path), f"--prepared={toy.prepared}"]
        command += [f"--run-dir={run_dir}", *OPTIONS, *settings, *options]
        self.run_dir = run_dir
        self.log = run_dir.with_name(f"log-{time.monotonic_ns()}")
        with self.log.open("wb") as stream:
            self.process = subprocess.Popen(command, stderr=stream, env=env)

    def wait_for_step(self, step):
        metrics = self.run_dir / "metrics.jsonl"
        wait_until(lambda: metrics.exists() and metrics.read_bytes().count(b'"loss"') >= step)

    def end(self):
        return self.process.wait(PATIENCE)

    def stderr(self):
        return self.log.read_text()

    def wait_for_stderr(self, text, times=1):
        wait_until(lambda: self.stderr().count(text) >= times or self.process.poll() is not None)
        assert self.stderr().count(text) == times, self.stderr()


def wait_until(is_true):
    deadline = time.monotonic() + PATIENCE
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def descendants(process):
    """Return all processes below this one, nearest first."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found = [process]
    for parent in found:
        found += [child for child, its_parent in parents.items() if its_parent == parent]
    return found[1:]


def lives(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def start(toy, tmp_path):
    trainings = []

    def call(*options, **keywords):
        trainings.append(Training(toy, tmp_path / "run", *options, **keywords))
        return trainings[-1]

    yield call
    for training in trainings:
        training.process.kill()
        training.process.wait()


def train_forked(toy, run_dir, *, resume=False):
    """Train to the end on two ranks, children of this process; return the last weights."""
    settings = [*SETTINGS, f"training.max_steps={MAX_STEPS}"]
    recipe = read_recipe(str(toy.recipe_path), settings).recipe

    def work(ranks):
        new_trainer(toy, run_dir, recipe, ranks=ranks, resume=resume).train(StopRequest())

    run_dir.mkdir(exist_ok=True)
    run_ranks(2, run_dir, work)
    return read_weights(list_checkpoints(run_dir)[-1].path)


@pytest.mark.timeout(300)
def test_two_processes_are_resumed_and_killed_and_resumed_to_the_same_end(start, toy, tmp_path):
    run_dir, undisturbed = tmp_path / "run", tmp_path / "undisturbed"
    here = {"prepared": toy.prepared, "run_dir": run_dir, "max_tokens_per_device": 120, **FP32}
    settings = [*SETTINGS, "training.max_steps=20"]
    train.run(str(toy.recipe_path), overrides=settings, threads=1, **here)
    shutil.copytree(run_dir, undisturbed)

    training = start("--devices=2", "--resume")
    training.wait_for_step(40)
    assert training.stderr().count("Recipe changed: training.max_steps ") == 1
    with pytest.raises(UserError, match=r"run is in use: process \d+ on .* trains in it since"):
        train.run(str(toy.recipe_path), resume=True, **here)
    _, worker, _ = descendants(training.process.pid)
    os.kill(worker, signal.SIGKILL)
    training.wait_for_stderr("Resuming from", times=2)  # at the first restart
    wait_until(lambda: training.stderr().count("Training") == 2)
    check_a_killed_launcher_leaves_none(training)
    assert "Traceback" not in training.stderr()

    found = train_forked(toy, run_dir, resume=True)
    assert list_steps(run_dir) == list(range(1, 151))
    expected = train_forked(toy, undisturbed, resume=True)
    assert all(torch.equal(found[name], weight) for name, weight in expected.items())


def check_a_killed_launcher_leaves_none(training):
    processes = descendants(training.process.pid)
    assert len(processes) == 3
    training.process.kill()
    deadline = time.monotonic() + 2
    while any(map(lives, processes)):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def list_steps(run_dir):
    records = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    return [record["step"] for record in records if "loss" in record]


@pytest.mark.slow  # test_ranks.py stops one of two forked ranks
def test_a_signal_to_one_worker_stops_all(start):
    training = start("--devices=2")
    training.wait_for_step(5)
    _, _, worker = descendants(training.process.pid)
    os.kill(worker, signal.SIGINT)
    assert training.end() == 75
    assert "SIGINT stopped training at step" in training.stderr()


SLOW_DISK = """\
import os, time
from pathlib import Path
fsync = os.fsync

def slow_fsync(descriptor):
    if Path({sign!r}).exists():
        time.sleep(0.3)
    fsync(descriptor)

os.fsync = slow_fsync
"""


def test_a_signal_is_passed_on_and_a_second_to_all_waits_for_a_save_that_takes_long(
    start, tmp_path
):
    sign, patient = tmp_path / "disk-is-slow", tmp_path / "site"
    patient.mkdir()
    (patient / "sitecustomize.py").write_text(SLOW_DISK.format(sign=str(sign)))
    # torchrun kills its workers so many seconds after a signal of its own, 30 by default.
    env = {**os.environ, "PYTHONPATH": str(patient), "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "1"}
    training = start("--devices=2", "--set=checkpoints.every_steps=999999", env=env)
    training.wait_for_step(5)
    sign.touch()
    training.process.terminate()
    wait_until(lambda: any((tmp_path / "run" / "checkpoints").glob("*")))  # a worker saves
    signalled_at = time.monotonic()
    for process in [training.process.pid, *descendants(training.process.pid)]:
        os.kill(process, signal.SIGTERM)
    assert training.end() == 75
    assert time.monotonic() - signalled_at > 1.5  # otherwise the save was not slow enough
    assert training.stderr().count("SIGTERM stopped training at step") == 1
    assert "Error" not in training.stderr()
    checkpoint = list_checkpoints(tmp_path / "run")[-1]
    assert f"step {checkpoint.step:,}; it was saved in" in training.stderr()
    assert verify(checkpoint.path)["kind"] == "safety"
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "interrupted"


@pytest.mark.slow  # training/test_worker.py forks the workers
def test_an_error_of_all_workers_is_logged_once_and_not_repeated(start):
    training = start("--devices=2", "--max-tokens-per-device=5")
    assert training.end() == 1
    assert training.stderr().count("Error: ") == 1
    assert "more than --max-tokens-per-device 5" in training.stderr()
    assert "Traceback" not in training.stderr()


@pytest.mark.slow
def test_two_nodes_train_together(start, toy, tmp_path):
    nodes = ["--devices=1", "--nnodes=2", f"--rdzv-endpoint=localhost:{free_port()}"]
    first, second = start(*nodes), start(*nodes)
    assert first.end() == second.end() == 0
    found = read_weights(list_checkpoints(tmp_path / "run")[-1].path)
    expected = train_forked(toy, tmp_path / "undisturbed")
    assert all(torch.equal(found[name], weight) for name, weight in expected.items())


@pytest.mark.slow
def test_the_users_own_torchrun_learns_the_outcome_from_status_json(start, tmp_path):
    torchrun = [str(Path(sys.executable).parent / "torchrun"), "--standalone"]
    launcher = [*torchrun, "--nproc-per-node=2", "-m", "nmt_cli"]
    training = start(launcher=launcher)
    training.wait_for_step(5)
    os.kill(descendants(training.process.pid)[-1], signal.SIGTERM)
    assert training.end() == 0
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert (status["state"], status["exit_status"]) == ("interrupted", 75)
    assert start("--resume", launcher=launcher).end() == 0
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "finished"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_worker_is_replaced_at_the_first_restart_20_of_20(start):
    for trial in range(20):
        training = start("--devices=2", *(["--resume"] if trial else []), max_steps=999_999)
        training.wait_for_stderr("Training")
        worker = descendants(training.process.pid)[1 + trial % 2]
        os.kill(worker, signal.SIGKILL)
        killed_at = time.monotonic()
        training.wait_for_stderr("Training", times=2)
        assert time.monotonic() - killed_at < 15
        training.process.terminate()
        assert training.end() == 75
