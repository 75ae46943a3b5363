"""Which validation is the best so far, and how many followed without being better."""

import math

from nmt_cli import logs
from nmt_cli.recipe.changes import changes_of_quality
from nmt_cli.recipe.schema import Recipe
from nmt_cli.runs.checkpoint import Progress

FIGURES = {"loss": "the loss", "bleu": "BLEU", "parseval": "F1"}


def count_validation(progress: Progress, quality: float | None) -> bool:
    """Count a validation of this step; return whether it is the best so far.

    A validation without a quality is never the best.
    """
    progress.validated_step = progress.step
    best = progress.best_quality
    is_best = quality is not None and math.isfinite(quality) and (best is None or quality > best)
    if is_best:
        progress.best_quality = quality
        progress.validations_without_improvement = 0
    else:
        progress.validations_without_improvement += 1
    return is_best


def begin_anew_after_changes(progress: Progress, before: Recipe, now: Recipe) -> None:
    """Reset the best quality and the patience if the recipe now measures quality differently."""
    keys = changes_of_quality(before, now)
    if not keys:
        return
    progress.best_quality = None
    progress.validations_without_improvement = 0
    progress.quality_since = progress.step
    figure = FIGURES[now.validation.best_by]
    logs.info(
        f"The best validation and the patience start anew at step {progress.step:,}, because "
        f"{' and '.join(keys)} changed: {figure} cannot be compared with earlier values."
    )
