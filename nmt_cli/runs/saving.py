"""When checkpoints are saved, and what a full disk does to that."""

import time
from pathlib import Path
from typing import Any, Literal, NamedTuple

from nmt_cli import logs
from nmt_cli.corpus.tokenizer import Tokenizer
from nmt_cli.errors import OutputError
from nmt_cli.recipe.schema import Recipe
from nmt_cli.runs.checkpoint import TrainingState, prune, save_checkpoint

MAX_FAILED_SAVES = 3

CheckpointKind = Literal["regular", "final", "safety"]


class Saved(NamedTuple):
    """Which checkpoint was saved last."""

    step: int = 0
    kind: CheckpointKind = "safety"
    is_measured: bool = False  # with the figures of its validation


class Saver:
    """Saves the checkpoints of one run, each once; of several ranks the main process writes."""

    def __init__(
        self, run_dir: Path, recipe: Recipe, tokenizer: Tokenizer, *, writes: bool
    ) -> None:
        self._run_dir, self._recipe, self._tokenizer = run_dir, recipe, tokenizer
        self._writes = writes
        self._failed_in_a_row = 0
        self.last = Saved()

    def save_once(
        self, new: Saved, state: TrainingState, facts: dict[str, Any], *, forgiving: bool = True
    ) -> float | None:
        """Save a checkpoint unless it is the one that was saved last; return the seconds it took.

        A full disk is told and forgiven twice in a row, where training goes on at all.
        """
        if new == self.last:
            return None
        started = time.monotonic()
        try:
            if self._writes:
                save_checkpoint(self._run_dir, state, self._recipe, self._tokenizer, facts)
                prune(self._run_dir, self._recipe.checkpoints.keep_for_average, new.step)
        except OutputError as error:
            self._failed_in_a_row += 1
            if not forgiving or self._failed_in_a_row >= MAX_FAILED_SAVES:
                raise
            logs.warning(f"{error} Training goes on; the next checkpoint tries again.")
            return None
        self._failed_in_a_row = 0
        self.last = new
        return time.monotonic() - started
