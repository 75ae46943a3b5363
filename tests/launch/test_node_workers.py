"""The errors that the launcher raises; torchrun is replaced by a process that ignores signals."""

import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from nmt_cli.launch.node_workers import Rendezvous, run_workers
from nmt_cli.launch.run_status import RunStatus, State, read_status, write_status
from nmt_cli.launch.worker import OUTCOME, this_worker
from nmt_cli.messages.errors import EndedAtOnceError, InterruptedTrainingError, UserError

LAUNCH = "a launch"
STUBBORN = ["sh", "-c", "trap '' USR2; exec sleep 60"]


PLACE = {"RANK": 1, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "MASTER_ADDR": "a", "MASTER_PORT": 29500}


@pytest.mark.parametrize(
    ("others", "is_worker"),
    [
        ({"TORCHELASTIC_RUN_ID": "a launch"}, True),
        ({"SLURM_PROCID": 1, "SLURM_NTASKS": 2}, True),  # a task for each GPU, in a container
        ({"SLURM_PROCID": 0, "SLURM_NTASKS": 1}, False),
        ({}, False),  # of a shell
    ],
)
def test_a_worker_is_what_torchrun_or_srun_started(monkeypatch, others, is_worker):
    for name in ("TORCHELASTIC_RUN_ID", "SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**PLACE, **others}.items():
        monkeypatch.setenv(name, str(value))
    worker = this_worker()
    assert (worker is not None) == is_worker
    if worker is not None:
        assert (worker.rank, worker.size, worker.local_rank) == (1, 2, 0)


@pytest.fixture
def launched(monkeypatch, tmp_path):
    """Run a launcher whose workers leave this outcome; the calls come once they are at work."""

    def call(outcome: State | None, *calls, command=STUBBORN):
        def start(*_, env, **__):
            process = popen(command)
            write_status(tmp_path, RunStatus("running", LAUNCH))
            if outcome is not None:
                status = 0 if outcome == "finished" else 75
                write_status(
                    Path(env[OUTCOME]),
                    RunStatus(outcome, LAUNCH, status, "saved at step 7."),
                )
            threading.Thread(target=lambda: [act(process) for act in calls]).start()
            return process

        popen = subprocess.Popen
        monkeypatch.setattr(subprocess, "Popen", start)
        rendezvous = Rendezvous(job_id=LAUNCH)
        run_workers(2, [], tmp_path, rendezvous, lambda path: EndedAtOnceError(f"{path} stands."))

    return call


def interrupt(process):
    handler: Any = signal.default_int_handler
    while handler is signal.default_int_handler:
        time.sleep(0.01)
        handler = signal.getsignal(signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)
    while handler.__self__.number is None:  # until then, a second signal would be lost
        time.sleep(0.01)


def test_a_second_interrupt_raises_what_stands_when_all_workers_have_ended(launched, tmp_path):
    processes: list[subprocess.Popen[bytes]] = []
    with pytest.raises(EndedAtOnceError, match=f"^{tmp_path} stands.$"):
        launched("running", processes.append, interrupt, interrupt)
    assert processes[0].returncode == -signal.SIGKILL
    status = read_status(tmp_path)
    assert status is not None
    assert (status.state, status.exit_status) == ("interrupted", 130)
    assert status.message == f"{tmp_path} stands."


def test_a_second_interrupt_after_saving_reports_that_it_was_saved(launched):
    with pytest.raises(InterruptedTrainingError, match=r"^saved at step 7\.$") as raised:
        launched("interrupted", interrupt, interrupt)
    assert raised.value.exit_status == 75


@pytest.mark.parametrize(
    ("outcome", "kind"), [("interrupted", InterruptedTrainingError), ("failed", UserError)]
)
def test_only_what_failed_is_raised_as_an_error(launched, outcome, kind):
    with pytest.raises(UserError, match=r"^saved at step 7\.$") as raised:
        launched(outcome, command=["true"])
    assert type(raised.value) is kind


def test_a_finished_training_is_no_error(launched):
    launched("finished", command=["true"])
