"""Divergence: batches without a finite gradient, and validations worse than guessing."""

import math

from nmt_cli import logs
from nmt_cli.errors import UserError
from nmt_cli.figures import short_number
from nmt_cli.recipe.schema import TrainingConfig
from nmt_cli.runs.checkpoint import Progress
from nmt_cli.training.gradient import Gradient

MAX_SKIPPED_IN_A_ROW = 10
SKIP_WINDOW = 1_000  # batches
MAX_SKIPPED_IN_WINDOW = 10


def count_skipped(progress: Progress, batch_index: int, gradient: Gradient) -> None:
    """Count a batch that was skipped. Raises UserError if training has diverged by such batches."""
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


def worse_than_guessing(
    nll: float, step: int, training: TrainingConfig, vocabulary_size: int
) -> str | None:
    """Return why training counts as diverged; None if it does not, or during warm-up.

    A model that gives every piece of the vocabulary the same probability has nll ln(size).
    """
    limit = math.log(vocabulary_size)
    if step < training.warmup_steps or nll <= limit:
        return None
    digits = 5 if abs(nll - limit) < 0.01 else 2  # so that the two numbers differ
    found = f"{short_number(nll, digits)} is above" if math.isfinite(nll) else f"{nll} is not below"
    guessing = f"ln({vocabulary_size:,}) = {limit:.{digits}f}, the nll of guessing"
    return f"the validation nll {found} {guessing}"


def advice_after_divergence(training: TrainingConfig) -> str:
    """Return advice on which keys to change, with their current values."""
    rate = "learning_rate_factor" if training.peak_learning_rate is None else "peak_learning_rate"
    now = getattr(training, rate)
    return (
        f"Start again in another --run-dir with a lower training.{rate} ({now:g} now) "
        f"or more training.warmup_steps ({training.warmup_steps:,} now)."
    )
