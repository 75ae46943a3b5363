"""Writes the state of a training into ``status.json`` when it begins and when it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from nmt_cli.files.atomic_files import is_failed_write
from nmt_cli.launch.node_workers import status_of_this_launch
from nmt_cli.launch.run_status import RunStatus, State, write_status
from nmt_cli.launch.worker import Worker
from nmt_cli.messages import logs
from nmt_cli.messages.errors import InterruptedTrainingError, OutputError, UserError
from nmt_cli.runs.run_directory import RunInUseError, ended_at_once

# Several ranks may fail with the same error, and only the lowest of them logs it: each rank waits
# this long for every rank below it, but at most for ten, before it logs.
SECONDS_FOR_A_LOWER_RANK = 0.3
MAX_LOWER_RANKS = 10


@contextmanager
def status_kept(run_dir: Path, worker: Worker | None, summary: Callable[[], str]) -> Iterator[None]:
    """Write to status.json that training runs, and after the block how and why it ended.

    ``summary()`` describes a training that came to its end. The failure of a worker is not written
    here, but by the rank that logs it (``report_failure``). Raises what the block raises, except
    that a KeyboardInterrupt, which a second SIGINT raises, becomes an EndedAtOnceError.
    """
    _write_status(run_dir, worker, "running")
    try:
        yield
    except Exception as error:
        is_interrupted = isinstance(error, InterruptedTrainingError)
        if is_interrupted or worker is None:
            state: State = "interrupted" if is_interrupted else "failed"
            reported = as_user_error(error, run_dir)
            _write_status(run_dir, worker, state, str(reported), reported.exit_status)
        raise
    except KeyboardInterrupt:
        ended = ended_at_once(run_dir)
        _write_status(run_dir, worker, "interrupted", str(ended), ended.exit_status)
        raise ended from None
    _write_status(run_dir, worker, "finished", summary(), exit_status=0)


def as_user_error(error: Exception, run_dir: Path) -> UserError:
    """Return ``error`` with the message and the exit status that the command reports for it."""
    if isinstance(error, UserError):
        return error
    if isinstance(error, OSError):
        kind = OutputError if is_failed_write(error) else UserError
        return kind(f"{error.filename or run_dir}: {error.strerror or error}.")
    return UserError(f"{type(error).__name__}: {error}")  # a bug


def has_failed(run_dir: Path, worker: Worker) -> bool:
    """Return whether a worker of this launch has already reported a failure."""
    status = status_of_this_launch(worker, run_dir)
    return status is not None and status.state == "failed"


def report_failure(run_dir: Path, worker: Worker, error: UserError) -> None:
    """Log an error that several ranks may have met, and write it into the status; only once.

    Under our own launcher the rank leaves the error to the launcher, which logs it. The status of a
    run that another launch has begun is not changed.
    """
    time.sleep(min(worker.rank, MAX_LOWER_RANKS) * SECONDS_FOR_A_LOWER_RANK)
    if has_failed(run_dir, worker):
        return
    is_our_run = status_of_this_launch(worker, run_dir) is not None
    status = RunStatus("failed", worker.launch, error.exit_status, str(error))
    if worker.outcome is not None:
        write_status(worker.outcome, status)
    else:
        logs.error(str(error))
    if is_our_run and not isinstance(error, RunInUseError):
        write_status(run_dir, status)


def _write_status(
    run_dir: Path,
    worker: Worker | None,
    state: State,
    message: str = "",
    exit_status: int | None = None,
) -> None:
    """Write the status into the run directory, and into our launcher's folder if it waits."""
    launch = worker.launch if worker is not None else ""
    status = RunStatus(state, launch, exit_status, message)
    if worker is not None and worker.outcome is not None:
        write_status(worker.outcome, status)
    if worker is None or worker.rank == 0:
        write_status(run_dir, status)
