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
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import NamedTuple

from nmt_cli.errors import InterruptedTrainingError, OutputError, UserError
from nmt_cli.folders import CHECKPOINTS
from nmt_cli.run_status import RunStatus, State, read_status, write_status
from nmt_cli.signals import handled

AGENT = "nmt_cli.hardware.torchrun"
# What our own launcher tells its workers: its monotonic clock when it began, the folder in which
# they leave their outcome, and the process that must live for them to live.
LAUNCHED, OUTCOME, PARENT = "NMT_CLI_LAUNCHED_AT", "NMT_CLI_OUTCOME", "NMT_CLI_PARENT"
WORKER_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
WORKERS_FAILED, NODES_APART = 10, 11  # exit statuses of the agent
MAX_RESTARTS = 3
POLL_SECONDS = 0.1
PATIENCE_SECONDS = 10.0  # with an agent that should end
END_AGENT = signal.SIGUSR2  # ends the agent, and workers that have not set up their handlers yet
PR_SET_PDEATHSIG = 1  # prctl.h


class Worker(NamedTuple):
    """This process's place, as torchrun tells it."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    launch: str  # the same for all workers and restarts of a launch
    restarts: int
    outcome: Path | None  # where our own launcher learns how it went, if that started torchrun


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
        Path(env[OUTCOME]) if OUTCOME in env else None,
    )


def status_of_this_launch(worker: Worker, run_dir: Path) -> RunStatus | None:
    """Return what the workers of this launch have said of it so far, before a restart perhaps."""
    if worker.outcome is not None:
        return read_status(worker.outcome)
    status = read_status(run_dir)
    began = time.time() - (time.monotonic() - started_at())
    if status is None or status.launch != worker.launch or status.at < began:
        return None
    return status


def started_at() -> float:
    """Return the monotonic time at which the command that the user typed began."""
    if LAUNCHED in os.environ:
        return float(os.environ[LAUNCHED])
    process = os.getpid() if this_worker() is None else os.getppid()  # the user's torchrun
    ticks = int(_stat_fields(process)[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.monotonic() - age


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent dies, so that none is left behind."""
    parent = int(os.environ.get(PARENT, os.getppid()))
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the call
        os.kill(os.getpid(), signal.SIGKILL)
    os.environ[PARENT] = str(os.getpid())  # of those that this process starts


def run_workers(
    num_workers: int,
    arguments: Sequence[str],
    run_dir: Path,
    rendezvous: Rendezvous,
    ended_at_once: Callable[[Path], UserError],
) -> None:
    """Run ``nmt-cli`` with ``arguments`` in ``num_workers`` processes until all have ended.

    Raises what a single process would: InterruptedTrainingError after a signal, UserError with the
    words of the rank that failed, or after a second SIGINT the error of ``ended_at_once(run_dir)``.
    """
    job_id = rendezvous.job_id or str(uuid.uuid4())
    command = [sys.executable, "-m", AGENT, *_torchrun_options(num_workers, rendezvous, job_id)]
    environment = {
        **os.environ,
        LAUNCHED: str(started_at()),
        PARENT: str(os.getpid()),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),  # the workers choose
        # Otherwise workers that were restarted read the addresses of those that died.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    received, is_ended_at_once = _Received(), False
    with TemporaryDirectory(prefix="nmt-cli-") as folder:  # torchrun would leave one of its own
        agent = subprocess.Popen(
            [*command, f"--log-dir={folder}", "-m", "nmt_cli", *arguments],
            env={**environment, OUTCOME: folder},
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # a terminal's Ctrl-C reaches us alone
        )
        try:
            with handled(received.handle):
                _wait(agent, received, Path(folder))
        except KeyboardInterrupt:
            is_ended_at_once = True
        finally:
            agent.kill()  # its workers die with it
            agent.wait()
        outcome = read_status(Path(folder))
    if is_ended_at_once and (outcome is None or outcome.state == "running"):
        error: UserError | None = ended_at_once(run_dir)
    else:
        error = _error_of(outcome, received.number, agent.returncode, run_dir)
    if error is not None:
        _correct_status(run_dir, job_id, error)
        raise error


def _torchrun_options(num_workers: int, rendezvous: Rendezvous, job_id: str) -> list[str]:
    options = {
        "nnodes": rendezvous.num_nodes,
        "nproc-per-node": num_workers,
        "max-restarts": MAX_RESTARTS,
        "monitor-interval": POLL_SECONDS,
        "rdzv-backend": "c10d",
        "rdzv-endpoint": rendezvous.endpoint,
        "rdzv-id": job_id,
        "signals-to-handle": END_AGENT.name,
    }
    return [f"--{name}={value}" for name, value in options.items()]


class _Received:
    """Signals that came to the launcher."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.told: set[int] = set()  # the workers to which it was passed on

    def handle(self, number: int, _: FrameType | None) -> None:
        if self.number is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.number = self.number or number


def _wait(agent: subprocess.Popen[bytes], received: _Received, outcome: Path) -> None:
    """Wait for the agent; pass a signal on, and do not let a failure be repeated."""
    give_up_at, last_workers = math.inf, None
    while agent.poll() is None:
        time.sleep(POLL_SECONDS)
        if received.number is not None and not _pass_on(received, agent.pid):
            agent.send_signal(END_AGENT)  # nothing is trained yet
            give_up_at = min(give_up_at, time.monotonic() + PATIENCE_SECONDS)
        status = read_status(outcome)
        if status is not None and status.state == "failed":
            workers = set(_children(agent.pid))
            last_workers = workers if last_workers is None else last_workers & workers
            if not last_workers:  # and none still saves; what runs now are restarts
                agent.kill()
        if time.monotonic() > give_up_at:
            agent.kill()


def _pass_on(received: _Received, agent: int) -> bool:
    """Send the signal once to each worker that listens; say whether one has ever listened.

    All ranks then stop at the same step. The agent would give them 30 seconds to save, and end
    them.
    """
    assert received.number is not None
    for worker in _children(agent):
        if worker not in received.told and _catches(worker, signal.SIGTERM):
            with suppress(ProcessLookupError):
                os.kill(worker, received.number)
                received.told.add(worker)
    return bool(received.told)


def _children(parent: int) -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = _stat_fields(int(path.name))
        except OSError:
            continue  # it has ended meanwhile
        if int(fields[1]) == parent:
            yield int(path.name)


def _stat_fields(process: int) -> list[str]:
    """Return what /proc says of a process, from its state on (man 5 proc, field 3)."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def _catches(process: int, number: signal.Signals) -> bool:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return False
    caught = next(line for line in lines if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def _error_of(
    outcome: RunStatus | None, signal_number: int | None, code: int, run_dir: Path
) -> UserError | None:
    """Return what a single process would have raised, None where it would have ended well."""
    if outcome is not None and outcome.state != "running":
        kind = InterruptedTrainingError if outcome.state == "interrupted" else UserError
        error = kind(outcome.message)
        error.exit_status = outcome.exit_status or 0
        return error if error.exit_status else None
    if signal_number is not None:
        name = signal.Signals(signal_number).name
        if not (run_dir / CHECKPOINTS).is_dir():
            return InterruptedTrainingError(
                f"{name} stopped training before anything was saved; run the same command again."
            )
        return InterruptedTrainingError(
            f"{name} stopped training before it could be saved; what {run_dir} held before "
            "stands, and --resume continues from there."
        )
    if code == 0 and outcome is None:
        return None  # the run was finished already
    if code == NODES_APART:
        return UserError(
            "the nodes did not meet; see to it that --nnodes, --rdzv-endpoint and --rdzv-id are "
            "the same on all, and that the endpoint can be reached."
        )
    if code not in {0, WORKERS_FAILED}:
        return UserError(f"torchrun failed with status {code}; what it said stands above.")
    return UserError(
        f"the workers ended without a word of their own, {MAX_RESTARTS + 1} times, as killed ones "
        f"do (the system's log tells of those); continue {run_dir} with --resume."
    )


def _correct_status(run_dir: Path, launch: str, error: UserError) -> None:
    """Let no "running" stand where the workers could not say how it ended."""
    status = read_status(run_dir)
    if status is not None and status.launch == launch and status.state == "running":
        state: State = "interrupted" if isinstance(error, InterruptedTrainingError) else "failed"
        with suppress(OutputError):
            write_status(run_dir, RunStatus(state, launch, error.exit_status, str(error)))
