"""torchrun as a child process: one command starts and stops the workers of a node."""

import logging
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

from nmt_cli.files.file_names import CHECKPOINTS
from nmt_cli.launch import python_process
from nmt_cli.launch.run_status import RunStatus, State, read_status, write_status
from nmt_cli.launch.stop_signals import STOPPING, handling_stop_signals
from nmt_cli.launch.worker import LAUNCH_ID, OUTCOME, PLACE_VARIABLES, Worker, this_worker
from nmt_cli.messages.errors import InterruptedTrainingError, UserError

AGENT = "from nmt_cli.launch.node_workers import run_torchrun; run_torchrun()"
# Our own launcher sets this variable for its workers: the monotonic time at which it began.
LAUNCHED = "NMT_CLI_LAUNCHED_AT"
# Exit statuses of the agent, which is the process that runs torchrun.
WORKERS_FAILED, NODES_APART = 10, 11
MAX_RESTARTS = 3
POLL_SECONDS = 0.1
PATIENCE_SECONDS = 10.0  # until an agent that was asked to end is killed
END_AGENT = signal.SIGUSR2  # ends the agent, and workers that have not set up their handlers yet


class Rendezvous(NamedTuple):
    """torchrun's options for how the nodes of a training find each other."""

    num_nodes: int = 1
    endpoint: str = "localhost:0"  # HOST:PORT of one of the nodes; 0 is any free port
    job_id: str | None = None  # the same on all nodes


def refuse_variables_of_others() -> None:
    """Raise UserError if variables describe one of several workers, but this process is none.

    Shells keep such variables, and some clusters set them. This process would train alone, or wait
    for processes that nobody started.
    """
    found = [name for name in PLACE_VARIABLES if name in os.environ]
    if this_worker() is None and os.environ.get("WORLD_SIZE", "1") != "1":
        values = " ".join(f"{name}={os.environ[name]}" for name in found)
        raise UserError(
            f"the environment has {values}, as for one of several processes, but torchrun did not "
            f"start this one ({LAUNCH_ID} is not set). To train with one process: unset "
            f"{' '.join(found)}. For several, give --devices or --nnodes, or use torchrun."
        )


def status_of_this_launch(worker: Worker, run_dir: Path) -> RunStatus | None:
    """Return the latest status that a worker of this launch wrote, also one before a restart."""
    if worker.outcome is not None:
        return read_status(worker.outcome)
    status = read_status(run_dir)
    if status is None or status.launch != worker.launch:
        return None
    if worker.is_of_srun:  # no two steps have the same name, and some of its workers start later
        return status
    began = time.time() - (time.monotonic() - started_at())
    return status if status.at >= began else None


def started_at() -> float:
    """Return the monotonic time at which the command that the user typed began."""
    if LAUNCHED in os.environ:
        return float(os.environ[LAUNCHED])
    fields, worker = _stat_fields("self"), this_worker()
    if worker is not None and not worker.is_of_srun:  # its parent is the user's torchrun
        # It may be in another PID namespace, or /proc may hide it: then this process counts.
        with suppress(OSError):
            fields = _stat_fields(fields[1])
    ticks = int(fields[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.monotonic() - age


def run_workers(
    num_workers: int,
    arguments: Sequence[str],
    run_dir: Path,
    rendezvous: Rendezvous,
    ended_at_once: Callable[[Path], UserError],
) -> None:
    """Run ``nmt-cli`` with ``arguments`` in ``num_workers`` processes until all have ended.

    Raises what training in one process would raise: InterruptedTrainingError after a signal,
    UserError with the message of the rank that failed; after a second SIGINT, which kills the
    workers, the error that ``ended_at_once(run_dir)`` returns.
    """
    job_id = rendezvous.job_id or str(uuid.uuid4())
    options = _torchrun_options(num_workers, rendezvous, job_id)
    received = _ReceivedSignal()
    # Also for torchrun's logs: in a folder of its own choice it would leave them behind.
    with TemporaryDirectory(prefix="nmt-cli-") as folder:
        agent = subprocess.Popen(
            python_process.python_command(
                *(AGENT, *options, f"--log-dir={folder}", "--no-python"),
                *python_process.python_command(python_process.NMT_CLI, *arguments),
            ),
            env=_environment(folder),
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # so that Ctrl-C in a terminal reaches only this process
        )
        is_killed = not _ends_by_itself(agent, received, Path(folder))
        outcome = read_status(Path(folder))
    if is_killed and (outcome is None or outcome.state == "running"):
        error: UserError | None = ended_at_once(run_dir)
    else:
        error = _error_of(outcome, received.number, agent.returncode, run_dir)
    if error is not None:
        _correct_status(run_dir, job_id, error)
        raise error


def run_torchrun() -> None:
    """Run torchrun with the arguments of this process, the agent, and exit with its status.

    The agent ends when its parent ends, and prints no traceback: the workers log or write their own
    errors.
    """
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError

    python_process.end_with_parent()
    # A batch system signals every process of a job. The workers then save and end. This process
    # ignores the signal and waits for them: torchrun's own handlers would kill workers that need
    # more than 30 seconds to save.
    for number in STOPPING:
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which the workers would inherit
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    try:
        torchrun.run(torchrun.parse_args(sys.argv[1:]))
    except (ChildFailedError, SignalException):
        sys.exit(WORKERS_FAILED)
    except RendezvousError:
        sys.exit(NODES_APART)


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


def _environment(outcome: str) -> dict[str, str]:
    """Return the variables of the agent, which its workers inherit."""
    return {
        **python_process.environment_of_child(),
        LAUNCHED: str(started_at()),
        OUTCOME: outcome,
        # Set, or torchrun warns that it sets it; the workers choose their number of threads.
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        # Otherwise restarted workers read the addresses of the workers that died.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }


class _ReceivedSignal:
    """The first signal that the launcher received, and the workers that it was passed on to."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.passed_to: set[int] = set()

    def handle(self, number: int, _: FrameType | None) -> None:
        if self.number is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.number = self.number or number


def _ends_by_itself(
    agent: subprocess.Popen[bytes], received: _ReceivedSignal, outcome: Path
) -> bool:
    """Wait until the agent and its workers have ended; return False if a second SIGINT kills them.

    In no case is the agent or a worker left running.
    """
    try:
        with handling_stop_signals(received.handle):
            _wait(agent, received, outcome)
    except KeyboardInterrupt:
        return False
    finally:
        agent.kill()  # the kernel then kills its workers
        agent.wait()
    return True


def _wait(agent: subprocess.Popen[bytes], received: _ReceivedSignal, outcome: Path) -> None:
    """Wait for the agent; pass a signal on, and prevent restarts after a failure."""
    kill_at, failed_workers = math.inf, None
    while agent.poll() is None:
        time.sleep(POLL_SECONDS)
        if received.number is not None and not _pass_on(received, agent.pid):
            agent.send_signal(END_AGENT)  # no worker trains yet, so there is nothing to save
            kill_at = min(kill_at, time.monotonic() + PATIENCE_SECONDS)
        status = read_status(outcome)
        if status is not None and status.state == "failed":
            workers = set(_children(agent.pid))
            failed_workers = workers if failed_workers is None else failed_workers & workers
            if not failed_workers:  # all that might still save have ended; others are restarts
                agent.kill()
        if time.monotonic() > kill_at:
            agent.kill()


def _pass_on(received: _ReceivedSignal, agent: int) -> bool:
    """Send the signal once to each worker that handles it; return whether any worker ever did.

    The workers then all stop at the same step. A signal to the agent would kill those that need
    more than 30 seconds to save.
    """
    assert received.number is not None
    for worker in _children(agent):
        if worker not in received.passed_to and _catches(worker, signal.SIGTERM):
            with suppress(ProcessLookupError):
                os.kill(worker, received.number)
                received.passed_to.add(worker)
    return bool(received.passed_to)


def _children(parent: int) -> Iterator[int]:
    """Yield the child processes of a process.

    The kernel's own list, /proc/PID/task/*/children, may leave some out while others end.
    """
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = _stat_fields(path.name)
        except OSError:
            continue  # the process has ended meanwhile
        if int(fields[1]) == parent:
            yield int(path.name)


def _stat_fields(process: str) -> list[str]:
    """Return the fields of /proc/PID/stat from the third, the state, on (man 5 proc).

    The fourth is the parent's id. Of "self", it is an id in the namespace of /proc, as no system
    call's is, and 0 if the parent is outside of it.

    The second field is the name of the program; it may hold spaces and parentheses.
    """
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def _catches(process: int, number: signal.Signals) -> bool:
    """Return whether the process has a handler for the signal; False if it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return False
    caught = next(line for line in lines if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def _error_of(
    outcome: RunStatus | None, signal_number: int | None, code: int, run_dir: Path
) -> UserError | None:
    """Return the error that one process would have raised; None if it would have raised none."""
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
            f"{name} stopped training before it could be saved; earlier checkpoints in {run_dir} "
            "remain, and --resume continues from the latest."
        )
    if code == 0 and outcome is None:
        return None  # the run was finished already
    if code == NODES_APART:
        return UserError(
            "the nodes did not find each other; check that --nnodes, --rdzv-endpoint and --rdzv-id "
            "are the same on all of them, and that they can reach the endpoint."
        )
    if code not in {0, WORKERS_FAILED}:
        return UserError(f"torchrun failed with status {code}; its own messages are above.")
    return UserError(
        f"the workers ended {MAX_RESTARTS + 1} times without an error message, so something killed "
        f"them (the system log may name it); continue {run_dir} with --resume."
    )


def _correct_status(run_dir: Path, launch: str, error: UserError) -> None:
    """Replace the status "running" that killed workers could not replace."""
    status = read_status(run_dir)
    if status is not None and status.launch == launch and status.state == "running":
        state: State = "interrupted" if isinstance(error, InterruptedTrainingError) else "failed"
        write_status(run_dir, RunStatus(state, launch, error.exit_status, str(error)))
