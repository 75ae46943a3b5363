"""torchrun as a child process: one command starts, stops and outlives the workers of a node.

A process that torchrun started, through this module or by the user, is a worker; it knows itself
by the variables that torchrun sets.
"""

from __future__ import annotations

import ctypes
import math
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import NamedTuple

from nmt_cli.errors import InterruptedTrainingError, UserError
from nmt_cli.run_status import RunStatus, read_status

AGENT = "nmt_cli.engine.torchrun"
LAUNCHED = "NMT_CLI_LAUNCHED_AT"  # set for workers of our own launcher: its monotonic clock then
WORKER_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
WORKERS_FAILED, NODES_APART = 10, 11  # exit statuses of the agent
MAX_RESTARTS = 3
POLL_SECONDS = 0.1
PATIENCE_SECONDS = 10.0  # with an agent that should end
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
PR_SET_PDEATHSIG = 1  # prctl.h


class Worker(NamedTuple):
    """This process's place, as torchrun tells it."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    launch: str  # the same for all workers and restarts of a launch
    restarts: int
    is_ours: bool  # our own launcher started torchrun, and reports what ``status.json`` says


class Rendezvous(NamedTuple):
    """Where the nodes of a training meet, in torchrun's words."""

    num_nodes: int = 1
    endpoint: str = "localhost:0"  # HOST:PORT of one of the nodes; 0 is any free port
    job_id: str | None = None  # the same on all nodes


def this_worker() -> Worker | None:
    """Return what torchrun made of this process, None where it did not start it."""
    env = os.environ
    if any(name not in env for name in WORKER_VARIABLES):
        return None
    return Worker(
        int(env["RANK"]),
        int(env["WORLD_SIZE"]),
        int(env["LOCAL_RANK"]),
        int(env.get("LOCAL_WORLD_SIZE", "1")),
        env.get("TORCHELASTIC_RUN_ID", "none"),
        int(env.get("TORCHELASTIC_RESTART_COUNT", "0")),
        LAUNCHED in env,
    )


def is_failure_of(launch: str, status: RunStatus | None) -> bool:
    """Say whether one of the workers of this launch has failed, and said why."""
    return status is not None and status.launch == launch and status.state == "failed"


def started_at() -> float:
    """Return the monotonic time at which the command that the user typed began."""
    if LAUNCHED in os.environ:
        return float(os.environ[LAUNCHED])
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])  # man 5 proc
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.monotonic() - age


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent dies, so that none is left behind."""
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the call
        os.kill(os.getpid(), signal.SIGKILL)


def run_workers(
    num_workers: int, arguments: Sequence[str], run_dir: Path, rendezvous: Rendezvous
) -> None:
    """Run ``nmt-cli`` with ``arguments`` in ``num_workers`` processes until all have ended.

    Raises what a single process would: InterruptedTrainingError after a signal, UserError with the
    words of the rank that failed; KeyboardInterrupt after a second SIGINT.
    """
    job_id = rendezvous.job_id or str(uuid.uuid4())
    command = [sys.executable, "-m", AGENT, *_torchrun_options(num_workers, rendezvous, job_id)]
    before = read_status(run_dir)
    environment = {
        **os.environ,
        LAUNCHED: str(started_at()),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),  # the workers choose
        # Otherwise workers that were restarted read the addresses of those that died.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    with TemporaryDirectory(prefix="nmt-cli-") as logs_folder:  # torchrun would leave its own
        agent = subprocess.Popen(
            [*command, f"--log-dir={logs_folder}", "-m", "nmt_cli", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # a terminal's Ctrl-C reaches us alone
        )
        try:
            with _received_signals() as received:
                _wait(agent, received, run_dir, job_id, before)
        finally:
            agent.kill()  # its workers die with it
            agent.wait()
    status = read_status(run_dir)
    _report(None if status == before else status, job_id, received, agent.returncode, run_dir)


def _torchrun_options(num_workers: int, rendezvous: Rendezvous, job_id: str) -> list[str]:
    options = {
        "nnodes": rendezvous.num_nodes,
        "nproc-per-node": num_workers,
        "max-restarts": MAX_RESTARTS,
        "monitor-interval": POLL_SECONDS,
        "rdzv-backend": "c10d",
        "rdzv-endpoint": rendezvous.endpoint,
        "rdzv-id": job_id,
    }
    return [f"--{name}={value}" for name, value in options.items()]


class _Received:
    """Signals that came to the launcher."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.is_passed_on = False

    def handle(self, number: int, _: FrameType | None) -> None:
        if self.number is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.number = self.number or number


@contextmanager
def _received_signals() -> Iterator[_Received]:
    received = _Received()
    previous = {number: signal.signal(number, received.handle) for number in PASSED_ON}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _wait(
    agent: subprocess.Popen[bytes],
    received: _Received,
    run_dir: Path,
    job_id: str,
    before: RunStatus | None,
) -> None:
    """Wait for the agent; pass one signal on, and do not let a failure be repeated."""
    give_up_at, last_workers = math.inf, None
    while agent.poll() is None:
        time.sleep(POLL_SECONDS)
        if received.number is not None and not received.is_passed_on:
            received.is_passed_on = True
            if not _pass_on(received.number, agent.pid):
                agent.terminate()  # nothing is trained yet, or again
                give_up_at = time.monotonic() + PATIENCE_SECONDS
        status = read_status(run_dir)
        if status != before and is_failure_of(job_id, status):
            workers = set(_children(agent.pid))
            last_workers = workers if last_workers is None else last_workers & workers
            if not last_workers:  # and none still saves; what runs now are restarts
                agent.kill()
        if time.monotonic() > give_up_at:
            agent.kill()


def _pass_on(number: int, agent: int) -> bool:
    """Send the signal to one worker that listens: all ranks then stop at the same step.

    The agent would give its workers 30 seconds to save, and end them.
    """
    for worker in _children(agent):
        if _catches(worker, signal.SIGTERM):
            os.kill(worker, number)
            return True
    return False


def _children(parent: int) -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        if int(fields[1]) == parent:
            yield int(path.parent.name)


def _catches(process: int, number: signal.Signals) -> bool:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return False
    caught = next(line for line in lines if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def _report(
    status: RunStatus | None, job_id: str, received: _Received, code: int, run_dir: Path
) -> None:
    """Say what came of it, as a single process would have."""
    if status is not None and status.launch == job_id:
        if status.state == "finished":
            return
        if status.exit_status is not None:
            error = UserError(status.message)
            error.exit_status = status.exit_status
            raise error
    if received.number is not None:
        name = signal.Signals(received.number).name
        raise InterruptedTrainingError(
            f"{name} stopped training before its first step; there was nothing new to save."
        )
    if code == 0:
        return
    if code == NODES_APART:
        raise UserError(
            "the nodes did not meet; see to it that --nnodes, --rdzv-endpoint and --rdzv-id are "
            "the same on all, and that the endpoint can be reached."
        )
    if code != WORKERS_FAILED:
        raise UserError(f"torchrun failed with status {code}; what it said stands above.")
    raise UserError(
        f"the workers ended {MAX_RESTARTS + 1} times without a word, as killed ones do (the "
        f"system's log tells of killed processes); continue {run_dir} with --resume."
    )
