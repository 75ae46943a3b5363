"""One session of a training, in one process: from the options to the last checkpoint.

Its state is written into ``status.json`` when it begins and when it ends.
"""

import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from nmt_cli.corpus.loader import refuse_longer
from nmt_cli.costs.this_machine import forecast
from nmt_cli.files.atomic_files import is_failed_write
from nmt_cli.files.locks import read_lock
from nmt_cli.hardware.device import tf32_allowed
from nmt_cli.hardware.fp32_products import use_fp32_products
from nmt_cli.hardware.machine import choose_machine, choose_rank_device
from nmt_cli.hardware.ranks import TIMEOUT_SECONDS, PeerLostError, RanksDifferError, connected_ranks
from nmt_cli.launch.node_workers import started_at, status_of_this_launch
from nmt_cli.launch.python_process import end_with_parent
from nmt_cli.launch.run_status import RunStatus, State, write_status
from nmt_cli.launch.stop_signals import StopRequest, handling_stop_signals
from nmt_cli.launch.worker import Worker
from nmt_cli.messages import logs
from nmt_cli.messages.errors import (
    InterruptedTrainingError,
    OutputError,
    UserError,
    reporting_full_memory,
)
from nmt_cli.saved import run_directory
from nmt_cli.saved.checkpoints import average_command, list_checkpoints
from nmt_cli.training.batch_cut import choose_cut
from nmt_cli.training.expected_length import planned_work, stage_that_begins_too_late
from nmt_cli.training.experiment import Experiment
from nmt_cli.training.starting import prepare_training
from nmt_cli.training.trainer import Trainer
from nmt_cli.training.training import Training

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
        ended = run_directory.ended_at_once(run_dir)
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
    is_logged_by_main = isinstance(error, RanksDifferError) and worker.outcome is None
    if has_failed(run_dir, worker) or (is_logged_by_main and worker.rank > 0):
        return
    is_our_run = status_of_this_launch(worker, run_dir) is not None
    status = RunStatus("failed", worker.launch, error.exit_status, str(error))
    if worker.outcome is not None:
        write_status(worker.outcome, status)
    else:
        logs.error(str(error))
    if is_our_run and not isinstance(error, run_directory.RunInUseError):
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


SLOWEST_DISK = 50e6  # bytes a second


def train(experiment: Experiment, worker: Worker | None = None) -> None:
    """Train in this process, alone or as one of torchrun's workers.

    Raises UserError for input that cannot be trained on, InterruptedTrainingError after a signal.
    """
    options = experiment.options
    device = choose_rank_device(options.device, worker)
    corpus = experiment.open_corpus(worker)
    recipe = corpus.completed(experiment.file.recipe)
    machine = choose_machine(device, worker, options)
    max_tokens = options.max_tokens_per_device
    cut = choose_cut(recipe, corpus.tokenizer.size, corpus.longest, machine, worker, max_tokens)
    is_resumed = False
    with ExitStack() as stack:
        stack.enter_context(read_lock(corpus.directory))
        if worker is None or worker.rank == 0:
            stack.enter_context(run_directory.locked(experiment.run_dir))
            is_restart = worker is not None and (
                worker.restarts > 0 or status_of_this_launch(worker, experiment.run_dir) is not None
            )
            is_resumed = experiment.check_run_directory(is_restart=is_restart)
        # The other ranks may wait here while one of them checks the text.
        timeout = TIMEOUT_SECONDS + corpus.num_bytes / SLOWEST_DISK
        stack.enter_context(connected_ranks(worker, device, timeout))
        stack.enter_context(tf32_allowed(device, machine.precision))
        training = prepare_training(
            recipe,
            corpus,
            experiment.run_dir,
            machine,
            cut,
            is_resumed=is_resumed,
            options=options,
        )
        stack.enter_context(use_fp32_products(training.machine.fp32_products))
        if training.is_complete():
            if machine.ranks.is_main and options.in_run:
                # Or the stage would never be up to date.
                run_directory.record_changes(experiment.run_dir, recipe)
            logs.info(f"{experiment.run_dir} is finished; nothing to do. {training.summary()}")
        else:
            _train(experiment, worker, training)


def train_as_worker(experiment: Experiment, worker: Worker) -> int:
    """Train as one of torchrun's workers; return the exit status.

    A worker that was asked to stop returns 0, because torchrun would start it again otherwise.
    """
    end_with_parent()
    if worker.rank > 0:
        logs.silence()
    if has_failed(experiment.run_dir, worker):
        return 1  # restarts are for killed workers
    try:
        with reporting_full_memory():
            train(experiment, worker)
    except PeerLostError as error:
        logs.warning(str(error))
        return 1
    except InterruptedTrainingError as error:
        if worker.outcome is None:
            logs.warning(str(error))
        return 0
    except (UserError, OSError) as error:
        reported = as_user_error(error, experiment.run_dir)
    except Exception:
        reported = UserError(f"rank {worker.rank} failed: {traceback.format_exc()}")
    else:
        return 0
    report_failure(experiment.run_dir, worker, reported)
    return reported.exit_status


def _train(experiment: Experiment, worker: Worker | None, training: Training) -> None:
    """Describe the session in the run directory, and train until the recipe's end."""
    corpus, machine = training.corpus, training.machine
    refuse_longer(training.cut.max_tokens, *(side.lengths for side in corpus.sides))
    glossaries = {str(path): str(terms) for path, terms in training.glossaries.items()}
    if machine.ranks.is_main:
        described = {
            "from_step": training.state.progress.step,
            "at": time.time(),
            "prepared": str(experiment.prepared),
            **machine.describe(),
            **training.engine.arithmetic(),
            **training.cut.as_manifest(),
        }
        if glossaries:
            _warn_of_changed_glossaries(experiment.run_dir, glossaries)
            described["glossaries"] = glossaries
        run_directory.describe_session(experiment.run_dir, training.recipe, described)
        _announce(training)
    max_time = experiment.options.max_time
    deadline = started_at() + max_time if max_time is not None else None
    stop = StopRequest(deadline, max_time=max_time, second_interrupt_ends=worker is None)
    with (
        handling_stop_signals(stop.handle),
        status_kept(experiment.run_dir, worker, training.summary),
        reporting_full_memory(),  # in the status too
    ):
        # This plans an epoch, so signals are handled.
        if machine.ranks.is_main and (late := stage_that_begins_too_late(training)):
            logs.warning(late)
        Trainer(training).train(stop)
    is_usable = training.divergence() is None
    if machine.ranks.is_main and is_usable and not experiment.options.in_run:
        logs.info(
            f"Next: {average_command(experiment.run_dir, list_checkpoints(experiment.run_dir))}"
        )


def _warn_of_changed_glossaries(run_dir: Path, glossaries: Mapping[str, str]) -> None:
    before = run_directory.last_session(run_dir).get("glossaries")
    for path, checksum in glossaries.items():
        if isinstance(before, dict) and before.get(path, checksum) != checksum:
            logs.warning(
                f"the terms of {path} have changed since the last session of {run_dir}; training "
                "goes on with the new ones. To keep the old ones, stop and restore the file."
            )


def _announce(training: Training) -> None:
    machine, parameters = training.machine, training.state.model.parameters()
    num_parameters = sum(parameter.numel() for parameter in parameters)
    where = str(machine.device)
    if machine.ranks.size > 1:
        where = f"{machine.ranks.size} {machine.device.type} ranks"
    logs.info(
        f"Training {num_parameters:,} parameters on {where} in {machine.precision}, micro-batches "
        f"of at most {training.cut.max_tokens:,} tokens a side, into {training.run_dir}."
    )
    if (work := planned_work(training.recipe, training.corpus)) is not None:
        logs.info(forecast(work, on_cpu=machine.device.type == "cpu"))
