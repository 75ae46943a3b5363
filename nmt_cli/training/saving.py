"""Saves checkpoints: only weights that all ranks have, also after a full memory or a lost rank."""

import hashlib
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import Any

from nmt_cli.hardware.memory import (
    FullMemoryError,
    give_up_memory_of,
    noticing_full_memory,
)
from nmt_cli.hardware.ranks import PeerLostError
from nmt_cli.messages import logs
from nmt_cli.messages.errors import OutputError, UserError
from nmt_cli.messages.figures import counted
from nmt_cli.recipe.reader import section_hash
from nmt_cli.runs.checkpoint import CheckpointKind, Saved, prune, save_checkpoint
from nmt_cli.training.training import Training

MAX_FAILED_SAVES = 3
SAMPLE_BYTES = 16 << 20  # that are written to estimate the time of a save


class Saver:
    """Saves the checkpoints of one run, each once; only the main rank writes files."""

    def __init__(self, training: Training) -> None:
        self._training, self._state = training, training.state
        self._ranks, self._run_dir = training.machine.ranks, training.run_dir
        self._compared_step = training.state.progress.step  # its weights are the same on all ranks
        self._num_failed_in_a_row = 0

    def save(self, kind: CheckpointKind, *, forgiving: bool = True) -> float:
        """Save a checkpoint unless it is the one that was saved last; return the seconds it took.

        Raises UserError if the weights differ between ranks or one is not finite, and OutputError
        if the disk is full. If ``forgiving``, the first two failures for want of space in a row are
        only logged.
        """
        self.require_same_weights()
        return self._save(kind, forgiving=forgiving)

    def _save(self, kind: CheckpointKind, *, forgiving: bool = True) -> float:
        progress, training = self._state.progress, self._training
        new = Saved(progress.step, kind, is_measured=progress.validated_step == progress.step)
        if new == self._state.saved:
            return 0.0
        started = time.monotonic()
        try:
            if self._ranks.is_main:
                save_checkpoint(
                    self._run_dir,
                    self._state,
                    training.recipe,
                    training.corpus.tokenizer,
                    self._facts(kind),
                    training.corpus.labels,
                )
                prune(self._run_dir, training.recipe.checkpoints.keep_for_average, new.step)
        except OutputError as error:
            self._num_failed_in_a_row += 1
            if not forgiving or self._num_failed_in_a_row >= MAX_FAILED_SAVES:
                raise
            logs.warning(f"{error} Training goes on; the next checkpoint tries again.")
            return 0.0
        self._num_failed_in_a_row = 0
        self._state.saved = new
        return time.monotonic() - started

    def require_same_weights(self) -> None:
        """Raise UserError if the ranks' weights differ; they are compared once for each step."""
        step = self._state.progress.step
        if self._ranks.size > 1 and step > self._compared_step:
            refuse_different_weights(self._training)
            self._compared_step = step

    def estimated_seconds(self) -> float:
        """Return about how long a save takes, from its bytes and the rate of writing some of them.

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
        return (time.monotonic() - started) * num_bytes / max(1, len(sample))

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
        if step <= self._state.saved.step or not self._state.optimizer.has_completed(step):
            return
        try:
            with noticing_full_memory():
                self._save("safety")
        except FullMemoryError:
            logs.warning(f"memory was too full to save step {step:,}.")

    def _facts(self, kind: CheckpointKind) -> dict[str, Any]:
        """Return what the manifest of a checkpoint holds besides its files."""
        recipe = self._training.recipe
        epoch, first_batch = self._training.plan.epoch_of(self._state.progress.batch_index)
        return {
            "kind": kind,
            "step": self._state.progress.step,
            "batch_index": self._state.progress.batch_index,
            "epoch": epoch,
            "first_batch_of_epoch": first_batch,
            "validation": self._state.validation,
            "recipe_sha256": section_hash(recipe, *type(recipe).model_fields),
            "prepared_files": self._training.corpus.manifest["files"],
            "initialized_from": self._state.origin,
            **self._training.machine.facts(),
            **self._training.cut.facts(),
        }


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
