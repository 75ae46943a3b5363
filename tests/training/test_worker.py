"""An error of training workers: the lowest rank reports it, and no restart tries again."""

import os
import shutil
import warnings
from pathlib import Path

import pytest

from nmt_cli.files import atomic_files
from nmt_cli.launch.run_status import read_status
from nmt_cli.launch.worker import OUTCOME, Worker
from nmt_cli.messages.errors import DamagedError
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.training.experiment import Experiment
from nmt_cli.training.options import TrainOptions
from tests.faults.zygote import be_the_command
from tests.forked_ranks import free_port


@pytest.fixture
def train(toy, tmp_path, monkeypatch):
    """Run the command as two forked workers of a launch; return exit statuses and stderr."""
    (tmp_path / "outcome").mkdir()
    for name, value in {
        "WORLD_SIZE": 2,
        "LOCAL_WORLD_SIZE": 2,
        "MASTER_ADDR": "localhost",
        "TORCHELASTIC_RUN_ID": "a launch",
        OUTCOME: tmp_path / "outcome",
    }.items():
        monkeypatch.setenv(name, str(value))

    def call(*options, restarts=0, of_rank=((), ())):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(restarts))
        monkeypatch.setenv("MASTER_PORT", str(free_port()))
        arguments = ["train", str(toy.recipe_path), f"--prepared={toy.prepared}", "--threads=1"]
        arguments += [f"--run-dir={tmp_path / 'run'}", "--device=cpu"]
        workers = []
        for rank in range(2):
            monkeypatch.setenv("RANK", str(rank))
            monkeypatch.setenv("LOCAL_RANK", str(rank))
            stderr = tmp_path / f"stderr-{restarts}-{rank}"
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # pytest has other threads
                process = os.fork()
            if process == 0:
                be_the_command([*arguments, *options, *of_rank[rank]], str(stderr), [])
            workers.append((process, stderr))
        ended = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process, _ in workers]
        return ended, [stderr.read_text() for _, stderr in workers]

    return call


def test_an_error_of_all_workers_is_reported_once_and_not_repeated(train, tmp_path):
    too_small = "--max-tokens-per-device=5"
    ended, stderr = train(too_small)
    assert (ended, stderr) == ([1, 1], ["", ""])  # the launcher logs it
    status = read_status(tmp_path / "outcome")
    assert status is not None
    assert (status.state, status.exit_status) == ("failed", 1)
    assert "more than --max-tokens-per-device 5" in status.message
    ended, stderr = train(restarts=1)  # which would train now
    assert (ended, stderr) == ([1, 1], ["", ""])
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_ranks_that_differ_end_with_one_line_also_by_another_launcher(train, tmp_path, monkeypatch):
    different = {"of_rank": ((), ("--exchange=bf16", "--set=data.train.0.weight=3"))}
    ended, stderr = train(**different)
    assert (ended, stderr) == ([1, 1], ["", ""])  # our launcher logs it
    status = read_status(tmp_path / "outcome")
    assert status is not None
    assert status.message == (
        "rank 0 and rank 1 differ in data.train.0.weight (1.0 and 3.0) and --exchange (fp32 and "
        "bf16); make them the same on all nodes, and start again."
    )
    monkeypatch.delenv(OUTCOME)
    ended, stderr = train(**different)
    assert (ended, stderr) == ([1, 1], [f"Error: {status.message}\n", ""])
    assert not (tmp_path / "run").exists()


OUR_LAUNCHER, SIDES = Path("outcome"), ("source", "target")


@pytest.mark.parametrize(
    ("worker", "reads_training_text"),
    [
        (None, True),
        (Worker(0, 2, 0, 2, "launch", 0, OUR_LAUNCHER), False),  # which has read it before
        (Worker(0, 4, 0, 2, "launch", 0, None), True),
        (Worker(1, 4, 1, 2, "launch", 0, None), False),
        (Worker(2, 4, 0, 2, "launch", 0, None), True),  # the first of another machine
    ],
)
def test_the_training_text_is_read_once_on_each_machine(
    toy, tmp_path, monkeypatch, worker, reads_training_text
):
    prepared, read = tmp_path / "prepared", []
    shutil.copytree(toy.prepared, prepared)
    sha256 = atomic_files.sha256

    def noted(path, advance):
        read.append(path.name)
        return sha256(path, advance)

    monkeypatch.setattr(atomic_files, "sha256", noted)
    options = TrainOptions(prepared=prepared, run_dir=tmp_path / "run")
    experiment = Experiment.of("toy", read_recipe(str(toy.recipe_path)), options)
    experiment.open_corpus(worker)
    expected = {path.name for path in prepared.iterdir()} - {"manifest.json"}
    if not reads_training_text:
        expected -= {f"train.{side}.{what}" for side in SIDES for what in ("tokens", "lengths")}
    assert sorted(read) == sorted(expected)
    with (prepared / "train.target.tokens").open("ab") as stream:
        stream.write(b"..")
    with pytest.raises(DamagedError, match=r"train\.target\.tokens has .* bytes, manifest\.json"):
        experiment.open_corpus(worker)
