"""The errors that the launcher raises; torchrun is replaced by a process that ignores signals."""

import os
import random
import signal
import subprocess
import threading
import time
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from nmt_cli.launch import node_workers, python_process
from nmt_cli.launch.node_workers import Rendezvous, run_workers, status_of_this_launch
from nmt_cli.launch.run_status import RunStatus, State, read_status, write_status
from nmt_cli.launch.worker import OUTCOME, Worker, tasks_of_this_node, this_worker
from nmt_cli.messages.errors import EndedAtOnceError, InterruptedTrainingError, UserError
from tests.srun_variables import STEPS, variables_of

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
def environment(monkeypatch):
    """Variables that replace those of this process."""
    variables: dict[str, str] = {}
    monkeypatch.setattr(os, "environ", variables)
    return variables


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.command)
@pytest.mark.parametrize("without", [(), ("LOCAL_RANK",), ("SLURM_STEP_TASKS_PER_NODE",)])
def test_a_task_of_srun_counts_those_of_its_node(environment, step, without):
    environment |= variables_of(step)
    for name in without:
        del environment[name]
    worker = this_worker()
    assert worker is not None
    assert worker[:4] == (step.rank, step.size, step.local_rank, step.tasks)
    assert (worker.cores, worker.launch, worker.is_of_srun) == (step.cores, "7.0.0", True)


def test_what_is_known_of_the_tasks_of_a_node_is_taken(environment):
    environment |= variables_of(STEPS[0])
    del environment["SLURM_STEP_TASKS_PER_NODE"], environment["SLURM_TASKS_PER_NODE"]
    for name, number in (("SLURM_NTASKS_PER_NODE", 8), ("SLURM_CPUS_ON_NODE", 3)):
        worker = this_worker()
        assert worker is not None
        assert worker.local_size == number  # at last, LOCAL_RANK is 2, so there are three
        del environment[name]
    worker = this_worker()
    assert worker is not None
    assert worker.cores is None
    environment["LOCAL_WORLD_SIZE"] = "5"
    assert this_worker() == worker._replace(local_size=5)


def test_torchrun_within_a_job_counts_its_own_workers(environment):
    environment |= variables_of(STEPS[0])
    environment |= {"LOCAL_WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "a launch"}
    assert this_worker() == Worker(10, 16, 2, 4, "a launch", 0, None)


def test_tasks_of_nodes_are_counted_as_srun_writes_them():
    rng = random.Random(1)
    for _ in range(200):
        counts = rng.choices([1, 2, 2, 8, 16], k=rng.randrange(1, 9))
        groups = [(count, len(list(equal))) for count, equal in groupby(counts)]
        text = ",".join(
            f"{count}(x{times})" if times > 1 else f"{count}" for count, times in groups
        )
        for node, count in enumerate(counts):
            variables = {"SLURM_NODEID": str(node), "SLURM_STEP_TASKS_PER_NODE": text}
            assert tasks_of_this_node(variables) == count, text
    assert tasks_of_this_node({"SLURM_TASKS_PER_NODE": "(null)", "SLURM_NODEID": "x"}) == 1


def test_a_status_of_another_step_is_not_that_of_this_launch(environment, tmp_path):
    environment |= variables_of(STEPS[0])
    worker = this_worker()
    assert worker is not None
    write_status(tmp_path, RunStatus("failed", worker.launch))
    assert status_of_this_launch(worker, tmp_path) is not None
    for name in ("SLURM_STEP_ID", "SLURM_JOB_ID", "SLURM_RESTART_COUNT"):
        environment[name] = "9"
        worker = this_worker()
        assert worker is not None
        assert status_of_this_launch(worker, tmp_path) is None


STARTED = """
import sys, time
from nmt_cli.launch.node_workers import started_at
print(time.monotonic() - started_at())
"""
IN_A_NAMESPACE = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]


def test_a_worker_whose_parent_is_in_another_namespace_counts_from_its_own_start():
    if subprocess.run([*IN_A_NAMESPACE, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this system makes no PID namespaces for users")
    variables = {name: str(value) for name, value in PLACE.items()}
    variables |= {**os.environ, **variables, "TORCHELASTIC_RUN_ID": "a launch"}
    command = python_process.python_command(STARTED)
    found = subprocess.run(
        [*IN_A_NAMESPACE, *command], env=variables, check=True, capture_output=True, text=True
    )
    assert 0 <= float(found.stdout) < 30


def test_a_parent_that_is_hidden_does_not_matter(environment, monkeypatch):
    """As /proc with hidepid hides the processes of others; of this process, it shows 0."""
    fields = node_workers._stat_fields
    read = []

    def hidden(process):
        read.append(process)
        if process != "self":
            raise FileNotFoundError(process)
        return fields(process)

    environment |= {name: str(value) for name, value in PLACE.items()}
    environment["TORCHELASTIC_RUN_ID"] = "a launch"
    of_parent = node_workers.started_at()
    monkeypatch.setattr(node_workers, "_stat_fields", hidden)
    of_this = node_workers.started_at()
    assert read == ["self", str(os.getppid())]
    assert of_parent <= of_this <= time.monotonic()


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
