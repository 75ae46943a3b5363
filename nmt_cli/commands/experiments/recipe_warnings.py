"""Warnings about recipes that are right but will disappoint: too few checkpoints to average."""

from collections.abc import Iterator
from typing import NamedTuple

from nmt_cli.messages import logs
from nmt_cli.messages.figures import counted
from nmt_cli.recipe.reader import RecipeFile
from nmt_cli.recipe.schema import Recipe


class _End(NamedTuple):
    """An end of the training and an interval that together bound the number of checkpoints."""

    end_key: str
    end: int
    interval_key: str
    interval: int

    @property
    def most(self) -> int:
        """The checkpoints at the interval, and the final one if it is not among them."""
        return -(-self.end // self.interval)


def shortage_of_checkpoints(recipe: Recipe) -> str:
    """Return a warning if the training must make too few checkpoints for its average, else "".

    Patience, or another end that comes first, can only lower the number of checkpoints.
    """
    wanted = recipe.checkpoints.keep_for_average
    bound = min(_ends(recipe), key=lambda end: end.most, default=None)
    if bound is None or bound.most >= wanted:
        return ""
    remedies = [f"checkpoints.keep_for_average to {bound.most}"]
    same_unit = bound.end_key.rpartition("_")[2] == bound.interval_key.rpartition("_")[2]
    if same_unit and bound.end >= wanted:
        remedies.insert(0, f"{bound.interval_key} to {bound.end // wanted}")
    return (
        f"checkpoints.keep_for_average is {wanted}, but {bound.end_key} {bound.end:,} and "
        f"{bound.interval_key} {bound.interval:,} make at most "
        f"{counted(bound.most, 'checkpoint')}, the final one included; "
        f"lower {' or '.join(remedies)}."
    )


def _ends(recipe: Recipe) -> Iterator[_End]:
    """Yield each bound on the number of checkpoints that the recipe alone gives.

    An end in epochs with an interval in steps gives none: the steps of an epoch depend on the text.
    """
    training, checkpoints = recipe.training, recipe.checkpoints
    by_steps = ("checkpoints.every_steps", checkpoints.every_steps)
    by_epochs = ("checkpoints.every_epochs", checkpoints.every_epochs)
    for end_key, end, (interval_key, interval) in (
        ("training.max_steps", training.max_steps, by_steps),
        ("training.max_epochs", training.max_epochs, by_epochs),
        ("training.max_steps", training.max_steps, by_epochs),  # an epoch has at least one step
    ):
        if end is not None and interval is not None:
            yield _End(end_key, end, interval_key, interval)


def warn_of_few_checkpoints(file: RecipeFile) -> None:
    """Warn if the training must make too few checkpoints for its average."""
    shortage = shortage_of_checkpoints(file.recipe)
    if shortage:
        logs.warning(f"{file.path}: {shortage}")
