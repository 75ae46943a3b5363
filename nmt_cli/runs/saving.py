"""When checkpoints are saved, and what a full disk or a full memory does to that."""

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from nmt_cli.corpus.binarized import PreparedCorpus
from nmt_cli.hardware.machine import Machine
from nmt_cli.hardware.memory import (
    FullMemoryError,
    give_up_memory_of,
    noticing_full_memory,
)
from nmt_cli.hardware.ranks import PeerLostError
from nmt_cli.messages import logs
from nmt_cli.messages.errors import OutputError, UserError
from nmt_cli.recipe.reader import section_hash
from nmt_cli.recipe.schema import Recipe
from nmt_cli.runs.checkpoint import CheckpointKind, Saved, TrainingState, prune, save_checkpoint

MAX_FAILED_SAVES = 3
SAMPLE_BYTES = 16 << 20  # that are written to estimate the time of a save


class Saver:
    """Saves the checkpoints of one run, each once; only the main rank writes files."""

    def __init__(
        self,
        run_dir: Path,
        recipe: Recipe,
        corpus: PreparedCorpus,
        machine: Machine,
        state: TrainingState,
    ) -> None:
        self._run_dir, self._recipe, self._corpus = run_dir, recipe, corpus
        self._machine, self._state = machine, state
        self._num_failed_in_a_row = 0

    def save(self, kind: CheckpointKind, *, forgiving: bool = True) -> float | None:
        """Save a checkpoint unless it is the one that was saved last; return the seconds it took.

        Raises UserError if a weight is not finite, and OutputError if the disk is full. If
        ``forgiving``, the first two failures for want of space in a row are only logged.
        """
        progress = self._state.progress
        new = Saved(progress.step, kind, is_measured=progress.validated_step == progress.step)
        if new == self._state.saved:
            return None
        started = time.monotonic()
        try:
            if self._machine.ranks.is_main:
                save_checkpoint(
                    self._run_dir,
                    self._state,
                    self._recipe,
                    self._corpus.tokenizer,
                    self._facts(kind),
                    self._corpus.labels,
                )
                prune(self._run_dir, self._recipe.checkpoints.keep_for_average, new.step)
        except OutputError as error:
            self._num_failed_in_a_row += 1
            if not forgiving or self._num_failed_in_a_row >= MAX_FAILED_SAVES:
                raise
            logs.warning(f"{error} Training goes on; the next checkpoint tries again.")
            return None
        self._num_failed_in_a_row = 0
        self._state.saved = new
        return time.monotonic() - started

    def estimated_seconds(self) -> float:
        """Return about how long a save takes, from its bytes and the rate of writing some of them.

        Returns 0 on ranks that save nothing, and if nothing can be written.
        """
        if not self._machine.ranks.is_main:
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
            if not (self._machine.ranks.is_main or error.on_all_ranks):
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
                self.save("safety")
        except FullMemoryError:
            logs.warning(f"memory was too full to save step {step:,}.")

    def _facts(self, kind: CheckpointKind) -> dict[str, Any]:
        """Return what the manifest of a checkpoint holds besides its files."""
        return {
            "kind": kind,
            "step": self._state.progress.step,
            "batch_index": self._state.progress.batch_index,
            "validation": self._state.validation,
            "recipe_sha256": section_hash(self._recipe, *type(self._recipe).model_fields),
            "prepared_files": self._corpus.manifest["files"],
            "initialized_from": self._state.origin,
            **self._machine.facts(),
            **self._state.cut.facts(),
        }
