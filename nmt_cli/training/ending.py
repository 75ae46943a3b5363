"""Whether a training is at its end, and by which key of the recipe."""

from nmt_cli.recipe.schema import Recipe
from nmt_cli.runs.checkpoint import Progress


def reasons_to_end(recipe: Recipe, progress: Progress, epoch: int) -> list[str]:
    """Return the reasons why training ends, one for each key; an empty list if it goes on.

    ``epoch`` is that of the next batch, counted from 0.
    """
    training, patience = recipe.training, recipe.validation.patience
    unimproved = progress.validations_without_improvement
    reasons = []
    if training.max_steps is not None and progress.step >= training.max_steps:
        reasons.append(f"training.max_steps {training.max_steps:,} was reached")
    if training.max_epochs is not None and epoch >= training.max_epochs:
        reasons.append(f"training.max_epochs {training.max_epochs:,} was reached")
    if patience is not None and unimproved >= patience:
        reasons.append(
            f"{unimproved:,} validations in a row brought no improvement "
            f"(validation.patience {patience:,})"
        )
    return reasons
