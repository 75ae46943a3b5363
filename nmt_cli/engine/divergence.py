"""Batches without a finite gradient: skipped, counted, and too many of them end training."""

from nmt_cli import logs
from nmt_cli.engine.checkpoint import Progress
from nmt_cli.engine.training_step import Gradient
from nmt_cli.errors import UserError

MAX_SKIPPED_IN_A_ROW = 10
SKIP_WINDOW = 1_000  # batches
MAX_SKIPPED_IN_WINDOW = 10


def count_skipped(progress: Progress, batch_index: int, gradient: Gradient) -> None:
    """Count a batch that was skipped; raise UserError where training diverged."""
    skipped = progress.skipped
    skipped[:] = [i for i in skipped if i > batch_index - SKIP_WINDOW] + [batch_index]
    progress.num_skipped += 1
    logs.warning(
        f"batch {batch_index:,} gave loss {gradient.loss:g} and gradient norm "
        f"{gradient.norm:g}; it was skipped and the weights left as they were."
    )
    last = range(batch_index - MAX_SKIPPED_IN_A_ROW + 1, batch_index + 1)
    if len(skipped) > MAX_SKIPPED_IN_WINDOW or set(last) <= set(skipped):
        raise UserError(
            f"training diverged: {len(skipped)} of the last {SKIP_WINDOW:,} batches gave no "
            f"finite gradient, the last at step {progress.step:,}. Lower the learning "
            "rate or set training.clip_norm, and continue from the last checkpoint with "
            "--resume --allow-change KEY."
        )
