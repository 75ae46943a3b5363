"""Saves checkpoints: only weights that all ranks have, also after a full memory or a lost rank.

On a GPU a thread writes them while training goes on, from a copy in the memory of the host. On a
CPU the copy would take as long as the writing, and more memory than most have.
"""

import hashlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import Any, NamedTuple

from nmt_cli.hardware.machine import Machine
from nmt_cli.hardware.memory import FullMemoryError, give_up_memory_of, noticing_full_memory
from nmt_cli.hardware.ranks import PeerLostError
from nmt_cli.messages import logs
from nmt_cli.messages.errors import OutputError, UserError
from nmt_cli.messages.figures import counted
from nmt_cli.recipe.reading.recipe_files import recipe_hash
from nmt_cli.saved.training_state import (
    CheckpointContents,
    CheckpointKind,
    LastSaved,
    prune,
    save_checkpoint,
)
from nmt_cli.training.training import Training

MAX_FAILED_SAVES = 3
SAMPLE_BYTES = 16 << 20  # that are written to estimate the time of a save


class _Writing(NamedTuple):
    """A checkpoint that is being written."""

    saved: LastSaved  # once it is written
    forgiving: bool
    is_done: Callable[[], bool]
    result: Callable[[], float]  # waits for the end; the seconds it took, or its error


class Saver:
    """Saves the checkpoints of one run, each once; only the main rank writes files.

    A thread may write one checkpoint at a time. The state changes, errors are raised and failures
    are logged in the thread of the caller, by ``finish`` or the next ``save``. Call ``close`` at
    the end, whatever has happened.
    """

    def __init__(self, training: Training) -> None:
        self._training, self._state = training, training.state
        self._ranks, self._run_dir = training.machine.ranks, training.run_dir
        self._compared_step = training.state.progress.step  # its weights are the same on all ranks
        self._num_failed_in_a_row = 0
        self._writing: _Writing | None = None
        self._thread: ThreadPoolExecutor | None = None
        if writes_in_thread(training.machine) and self._ranks.is_main:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="saver")

    def save(self, kind: CheckpointKind, *, forgiving: bool = True) -> float:
        """Save a checkpoint unless it is the one that was saved last.

        Returns the seconds that a save may take, 0 if a thread goes on with it. Raises UserError if
        the weights differ between ranks or one is not finite, and OutputError if the disk is full.
        If ``forgiving``, a thread may write it, and the first two failures for want of space in a
        row are only logged.
        """
        self.finish()
        self.require_same_weights()
        return self._save(kind, forgiving=forgiving)

    def finish(self, *, wait: bool = True) -> float:
        """Finish the checkpoint that a thread is writing, if it is done or if ``wait`` is true.

        Returns the seconds that a save may take, including the wait for the previous save; 0 if no
        checkpoint was finished. Raises OutputError if the disk is full.
        """
        writing = self._writing
        if writing is None or not (wait or writing.is_done()):
            return 0.0
        self._writing = None
        try:
            seconds = writing.result()
        except OutputError as error:
            self._num_failed_in_a_row += 1
            if writing.forgiving and self._num_failed_in_a_row < MAX_FAILED_SAVES:
                advice = f"; {error.remedy}" if error.remedy else ""
                logs.warning(
                    f"{error.what}{advice}. Training goes on; the next checkpoint tries again."
                )
                return 0.0
            step = self._state.progress.step
            if step > writing.saved.step and self._state.optimizer.has_completed(step):
                seconds = self._save("safety", forgiving=False)  # a thread wrote an earlier one
                logs.warning(f"{error.what}. Step {step:,} was saved in its place.")
                return seconds
            then = self._what_is_saved(error.remedy or "free some space")
            raise OutputError(f"{error.what}. {then}") from error
        self._num_failed_in_a_row = 0
        self._state.saved = writing.saved
        return seconds * self._num_in_turn

    def _what_is_saved(self, remedy: str) -> str:
        """Return what training loses when it ends now, and how it goes on."""
        saved, step = self._state.saved.step, self._state.progress.step
        again = "run the same command"
        kept = f"No step is saved in {self._run_dir}"
        if saved:
            again += " with --resume"
            kept = f"Step {saved:,} is the last that is saved in {self._run_dir}"
        lost = counted(step - saved, "step")
        return f"{kept}, and training ends {lost} later: {remedy}, then {again}."

    def close(self) -> None:
        """Wait for the checkpoint that is being written; only log an error of it."""
        try:
            self.finish()
        except Exception as error:
            logs.warning(f"a checkpoint was not saved: {error}")
        if self._thread is not None:
            self._thread.shutdown()

    def _save(self, kind: CheckpointKind, *, forgiving: bool) -> float:
        """Save a checkpoint when no thread is writing one; return its seconds."""
        progress = self._state.progress
        new = LastSaved(progress.step, kind, is_measured=progress.validated_step == progress.step)
        if new == self._state.saved:
            return 0.0
        write = self._writer(kind)
        if self._thread is None:
            self._writing = _Writing(new, forgiving, lambda: True, write)
        else:
            future = self._thread.submit(write)
            self._writing = _Writing(new, forgiving, future.done, future.result)
        return self.finish(wait=self._thread is None or not forgiving)

    def _writer(self, kind: CheckpointKind) -> Callable[[], float]:
        """Return what writes this step and returns the seconds since this call.

        A thread may call it when the state has changed.
        """
        if not self._ranks.is_main:
            return lambda: 0.0
        started, training, manifest = time.monotonic(), self._training, self._manifest(kind)
        contents = CheckpointContents.of(self._state, are_copied=self._thread is not None)

        def write() -> float:
            step, recipe = contents.progress.step, training.recipe
            save_checkpoint(self._run_dir, contents, recipe, training.corpus, manifest)
            prune(self._run_dir, recipe.checkpoints.keep_for_average, step)
            return time.monotonic() - started

        return write

    def require_same_weights(self) -> None:
        """Raise UserError if the ranks' weights differ; they are compared once for each step."""
        step = self._state.progress.step
        if self._ranks.size > 1 and step > self._compared_step:
            refuse_different_weights(self._training)
            self._compared_step = step

    def estimated_seconds(self) -> float:
        """Return about how long a save may take, from its bytes and the rate of writing some.

        Returns 0 on ranks that save nothing, and if nothing can be written.
        """
        if not self._ranks.is_main:
            return 0.0
        state = self._state
        weights = sum(parameter.nbytes for parameter in state.model.parameters())
        num_bytes = weights * (3 + (state.average is not None))  # with Adam's moments
        sample = bytes(min(num_bytes, SAMPLE_BYTES))
        started = time.monotonic()
        try:
            with TemporaryFile(dir=self._run_dir) as stream:
                stream.write(sample)
                stream.flush()
                os.fsync(stream.fileno())
                hashlib.sha256(sample)  # of the manifest
        except OSError:
            return 0.0
        seconds = (time.monotonic() - started) * num_bytes / max(1, len(sample))
        return seconds * self._num_in_turn

    @property
    def _num_in_turn(self) -> int:
        """The most checkpoints that are written one after the other until a save ends."""
        return 1 if self._thread is None else 2

    @contextmanager
    def saving_before_failure(self, where: str) -> Iterator[None]:
        """Save a checkpoint if the block runs out of memory or loses a rank, then raise the error.

        ``where`` follows "out of memory" in the message. Nothing is saved if a step was interrupted
        while it updated the weights. Raises UserError after a full memory.
        """
        try:
            with noticing_full_memory():
                yield
        except PeerLostError:
            self._save_for_safety()
            raise
        except FullMemoryError as error:
            self._state.model.zero_grad(set_to_none=True)
            give_up_memory_of(error)  # saving needs some
            self._save_for_safety()
            step = self._state.saved.step
            kept = f"step {step:,} is saved in {self._run_dir}" if step else "nothing is saved yet"
            if not (self._ranks.is_main or error.on_all_ranks):
                kept = f"{self._run_dir} keeps its checkpoints"  # others may have saved later
            raise UserError(
                f"out of memory {where}; {kept}. Free memory that other programs hold, or take "
                "a machine with more, and continue with --resume."
            ) from error

    def _save_for_safety(self) -> None:
        step = self._state.progress.step
        try:
            with noticing_full_memory():
                self.finish()
                if step > self._state.saved.step and self._state.optimizer.has_completed(step):
                    self._save("safety", forgiving=True)
                    self.finish()
        except FullMemoryError:
            logs.warning(f"memory was too full to save step {step:,}.")

    def _manifest(self, kind: CheckpointKind) -> dict[str, Any]:
        """Return what the manifest of a checkpoint holds besides its files."""
        recipe, progress = self._training.recipe, self._state.progress
        epoch, first_batch = self._training.plan.epoch_of(progress.batch_index)
        stage = progress.stage
        return {
            "kind": kind,
            "step": self._state.progress.step,
            "batch_index": self._state.progress.batch_index,
            "epoch": epoch,
            "first_batch_of_epoch": first_batch,
            **({"stage": stage, "stage_from_step": progress.stage_step} if stage else {}),
            "validation": self._state.validation,
            "recipe_sha256": recipe_hash(recipe),
            "prepared_files": self._training.corpus.manifest["files"],
            "initialized_from": self._state.origin,
            **self._training.engine.arithmetic(),
            **self._training.cut.as_manifest(),
        }


def writes_in_thread(machine: Machine) -> bool:
    """Return whether a thread writes checkpoints while training goes on."""
    return machine.device.type == "cuda"


def refuse_different_weights(training: Training) -> None:
    """Raise UserError if the ranks' weights differ in a single bit.

    The message names the checkpoint that was saved last.
    """
    state, digest = training.state, hashlib.sha256()
    for parameter in state.model.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    digests = training.machine.ranks.gather(digest.hexdigest())
    (common, _), *others = Counter(digests).most_common()
    if not others:
        return
    groups = " and of ".join(
        f"{counted(len(group), 'rank')} ({', '.join(map(str, group))})"
        for group in (
            [rank for rank, found in enumerate(digests) if (found == common) == is_common]
            for is_common in (True, False)
        )
    )
    continued = (
        f"Step {state.saved.step:,} in {training.run_dir} was the same on all ranks: run the same "
        "command with --resume to continue from it."
        if state.saved.step
        else "Nothing is saved yet: run the same command again."
    )
    raise UserError(
        f"the weights of {groups} differ at step {state.progress.step:,}, though all added the "
        "same gradients: a device, its memory or a library computed wrong numbers. Find and repair "
        f"it, or leave its machine out. {continued}"
    )
