"""One session of a training, in one process: from the options to the last checkpoint."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from nmt_cli import logs
from nmt_cli.atomic_files import is_full_disk
from nmt_cli.corpus.batching import refuse_longer
from nmt_cli.corpus.binarized import PreparedCorpus, open_prepared
from nmt_cli.corpus.changed_text import changed_text
from nmt_cli.errors import InterruptedTrainingError, OutputError, UserError
from nmt_cli.folders import CHECKPOINT_GLOB, CHECKPOINTS
from nmt_cli.hardware.busy_machine import LoadMeter, warn_if_busy
from nmt_cli.hardware.machine import (
    MachineOptions,
    choose_machine,
    choose_rank_device,
    cut_as_before,
)
from nmt_cli.hardware.precision import useful_threads
from nmt_cli.hardware.ranks import PeerLostError, joined_ranks
from nmt_cli.launch import Worker, die_with_parent, started_at, status_of_this_launch
from nmt_cli.model.compiled_residual import compile_residuals
from nmt_cli.model_directory import average_command, list_checkpoints
from nmt_cli.proposed_commands import as_argument, command
from nmt_cli.recipe.reader import RecipeFile
from nmt_cli.run_status import RunStatus, State, write_status
from nmt_cli.runs.run_directory import (
    RunInUseError,
    check_run_directory,
    describe_session,
    ended_at_once,
    locked,
)
from nmt_cli.runs.warm_start import start_from
from nmt_cli.training.stop_signals import StopRequest, stop_requests
from nmt_cli.training.trainer import Trainer

TEXT_SECTIONS = ("data", "tokenizer")  # of a recipe; preprocess depends on them alone
# When several ranks fail with the same error, only the lowest rank logs it: every rank waits this
# long for each rank below it, at most ten, before it logs.
SECONDS_BETWEEN_SPEAKERS = 0.3


class TrainOptions(MachineOptions, total=False):
    """The flags of ``train``; what is left out has the default of ``--help``."""

    overrides: Sequence[str]
    prepared: Path | None
    run_dir: Path | None
    resume: bool
    allowed_changes: Sequence[str]
    init_from: Path | None
    max_time: float | None  # seconds, counted from the start of the command
    devices: int | None
    nnodes: int
    rdzv_endpoint: str | None
    rdzv_id: str | None
    quiet: bool


class Job(NamedTuple):
    """What to train, and where."""

    recipe_name: str
    file: RecipeFile
    run_dir: Path
    options: TrainOptions

    def open_corpus(self, worker: Worker | None = None) -> PreparedCorpus:
        """Return the prepared text after checking every file of it; warn if it is out of date."""
        prepared = self.options.get("prepared") or self.file.prepared
        try:
            corpus = open_prepared(prepared, self.file.recipe, self._preprocess())
        except UserError:
            if self.options.get("resume") and self.run_dir.is_dir():
                self.check_run_directory()  # what cannot change within a run comes first
            raise
        if worker is None or (worker.rank == 0 and worker.outcome is None):
            self._warn_of_changed_text(corpus)  # otherwise rank 0 or our launcher warns
        return corpus

    def _warn_of_changed_text(self, corpus: PreparedCorpus) -> None:
        changed = changed_text(corpus.directory, corpus.manifest)
        if not changed:
            return
        files = "file" if len(changed) == 2 else "files"
        others = f" and {len(changed) - 1} more {files} have" if len(changed) > 1 else " has"
        is_begun = any((self.run_dir / CHECKPOINTS).glob(CHECKPOINT_GLOB))
        then = ", then train into another --run-dir" if is_begun else ""
        logs.warning(
            f"{changed[0]}{others} changed since {corpus.directory} was made, and training uses "
            f"what was prepared. To use the new text: {self._preprocess()} --force{then}"
        )

    def _preprocess(self) -> str:
        """Return the command that prepares this job's text, with the user's own options."""
        overrides, prepared = self.options.get("overrides", ()), self.options.get("prepared")
        words: list[str | Path] = []
        # All of them or none: keys are checked together, so one left out could be an error.
        if any(override.strip().startswith(TEXT_SECTIONS) for override in overrides):
            words += [part for override in overrides for part in ("--set", override)]
        if prepared is not None:
            words += ["--prepared", prepared]
        return command("nmt-cli", "preprocess", as_argument(self.recipe_name), *words)

    def check_run_directory(self, *, is_restart: bool = False) -> bool:
        """Return whether there is something to resume; refuse to mix two trainings."""
        return check_run_directory(
            self.run_dir,
            self.file.recipe,
            resume=is_restart or self.options.get("resume", False),
            allowed=self.options.get("allowed_changes", ()),
        )


def train(job: Job, worker: Worker | None = None) -> None:
    """Train in this process, alone or as one of torchrun's workers.

    Raises UserError for input that cannot be trained on, InterruptedTrainingError after a signal.
    """
    device = choose_rank_device(job.options.get("device", "auto"), worker)
    corpus = job.open_corpus(worker)
    machine = choose_machine(job.file.recipe, corpus.tokenizer.size, device, worker, job.options)
    is_resumed = False
    with ExitStack() as stack:
        if worker is None or worker.rank == 0:
            stack.enter_context(locked(job.run_dir))
            is_restart = worker is not None and (
                worker.restarts > 0 or status_of_this_launch(worker, job.run_dir) is not None
            )
            is_resumed = job.check_run_directory(is_restart=is_restart)
        ranks = stack.enter_context(joined_ranks(worker, device))
        machine = machine._replace(ranks=ranks, multiple_of=ranks.size)
        trainer = Trainer(job.file.recipe, corpus, job.run_dir, machine)
        if machine.is_compiled:
            compile_residuals(trainer.model)
        _restore(trainer, job, is_resumed=is_resumed)
        if trainer.is_complete():
            logs.info(f"{job.run_dir} is finished; nothing to do. {trainer.summary()}")
        else:
            _train(trainer, job, worker)


def _restore(trainer: Trainer, job: Job, *, is_resumed: bool) -> None:
    """Give the trainers of all ranks their first state, and their batches the cut they had."""
    ranks, before, init_from = trainer.machine.ranks, None, job.options.get("init_from")
    if is_resumed:
        before = dict(trainer.resume())
        if init_from is not None:
            logs.info(f"--init-from {init_from} is not used: the run goes on from its own weights.")
    elif init_from is not None and ranks.is_main:
        warm_start = start_from(init_from, trainer.model, trainer.corpus.tokenizer)
        trainer.origin = warm_start.facts()
        trainer.start_average()
        logs.info(str(warm_start))
    trainer.take_over_state()
    before = ranks.from_main(before)
    if before is not None:
        is_chosen = job.options.get("max_tokens_per_device") is not None
        trainer.machine = cut_as_before(trainer.machine, before, is_chosen=is_chosen)


def _train(trainer: Trainer, job: Job, worker: Worker | None) -> None:
    trainer.fit_to_memory()
    if worker is None:  # ranks on one machine would count each other as other programs
        warn_if_busy(LoadMeter(), useful_threads(trainer.machine.device))
    corpus, machine = trainer.corpus, trainer.machine
    sides = (corpus.source, corpus.target, corpus.validation_source, corpus.validation_target)
    refuse_longer(machine.max_tokens, *(side.lengths for side in sides))
    if machine.ranks.is_main:
        session = {"from_step": trainer.progress.step, **machine.describe()}
        describe_session(job.run_dir, job.file.recipe, session)
        _announce(trainer, job.run_dir)
    max_time = job.options.get("max_time")
    deadline = started_at() + max_time if max_time is not None else None
    stop = StopRequest(deadline, max_time=max_time, second_interrupt_ends=worker is None)
    with stop_requests(stop), _status_kept(trainer, worker):
        trainer.train(stop)
    if machine.ranks.is_main and trainer.divergence() is None:
        logs.info(f"Next: {average_command(job.run_dir, list_checkpoints(job.run_dir))}")


def _announce(trainer: Trainer, run_dir: Path) -> None:
    machine = trainer.machine
    num_parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    where = str(machine.device)
    if machine.ranks.size > 1:
        where = f"{machine.ranks.size} {machine.device.type} ranks"
    logs.info(
        f"Training {num_parameters:,} parameters on {where} in {machine.precision}, "
        f"micro-batches of at most {machine.max_tokens:,} tokens a side, into {run_dir}."
    )


@contextmanager
def _status_kept(trainer: Trainer, worker: Worker | None) -> Iterator[None]:
    """Write how training stands while the block runs, and how and why it ended.

    The failure of a worker is not written here: the rank that logs it also writes it.
    """
    run_dir = trainer.run_dir
    _say(run_dir, worker, "running")
    try:
        yield
    except InterruptedTrainingError as error:
        _say(run_dir, worker, "interrupted", str(error), error.exit_status)
        raise
    except UserError as error:
        if worker is None:
            _say(run_dir, worker, "failed", str(error), error.exit_status)
        raise
    except Exception as error:  # a bug, or what no part of training expects
        if worker is None:
            _say(run_dir, worker, "failed", f"{type(error).__name__}: {error}", exit_status=1)
        raise
    except KeyboardInterrupt:
        ended = ended_at_once(run_dir)
        _say(run_dir, worker, "interrupted", str(ended), ended.exit_status)
        raise ended from None
    _say(run_dir, worker, "finished", trainer.summary(), exit_status=0)


def _say(
    run_dir: Path,
    worker: Worker | None,
    state: State,
    message: str = "",
    exit_status: int | None = None,
) -> None:
    """Write the status for our own launcher, if that waits, and into the run directory."""
    launch = worker.launch if worker is not None else ""
    status = RunStatus(state, launch, exit_status, message)
    if worker is not None and worker.outcome is not None:
        _write(worker.outcome, status)
    if worker is None or worker.rank == 0:
        _write(run_dir, status)


def _write(folder: Path, status: RunStatus) -> None:
    """Write the status; where the disk is full, that is not what it is about."""
    with suppress(OSError, OutputError):
        write_status(folder, status)


def train_as_worker(job: Job, worker: Worker) -> int:
    """Train as one of torchrun's workers; return the exit status.

    A stop is a success to torchrun, which would otherwise start the workers again.
    """
    die_with_parent()
    if worker.rank > 0:
        logs.silence()
    if _has_failed(job.run_dir, worker):
        return 1  # restarts are for killed workers
    try:
        train(job, worker)
    except PeerLostError as error:
        logs.warning(str(error))
        return 1
    except InterruptedTrainingError as error:
        if worker.outcome is None:
            logs.warning(str(error))
        return 0
    except UserError as error:
        told = error
    except OSError as error:
        kind = OutputError if is_full_disk(error) else UserError
        told = kind(f"{error.filename or job.run_dir}: {error.strerror}.")
    except Exception:
        told = UserError(f"rank {worker.rank} failed: {traceback.format_exc()}")
    else:
        return 0
    _tell_once(job.run_dir, worker, told)
    return told.exit_status


def _has_failed(run_dir: Path, worker: Worker) -> bool:
    status = status_of_this_launch(worker, run_dir)
    return status is not None and status.state == "failed"


def _tell_once(run_dir: Path, worker: Worker, error: UserError) -> None:
    """Log an error that several ranks may have met; only the lowest of them logs it.

    Under our own launcher the rank leaves the error to the launcher, which logs it. The status of a
    run that another launch has begun is not changed.
    """
    time.sleep(min(worker.rank, 10) * SECONDS_BETWEEN_SPEAKERS)
    if _has_failed(run_dir, worker):
        return
    is_our_run = status_of_this_launch(worker, run_dir) is not None
    status = RunStatus("failed", worker.launch, error.exit_status, str(error))
    if worker.outcome is not None:
        _write(worker.outcome, status)
    else:
        logs.error(str(error))
    if is_our_run and not isinstance(error, RunInUseError):
        _write(run_dir, status)
