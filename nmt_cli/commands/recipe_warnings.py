"""Warnings about recipes that are right but will disappoint."""

from nmt_cli import logs
from nmt_cli.recipe.checkpoint_count import shortage_of_checkpoints
from nmt_cli.recipe.reader import RecipeFile


def warn_of_few_checkpoints(file: RecipeFile) -> None:
    """Warn if the training must make too few checkpoints for its average."""
    shortage = shortage_of_checkpoints(file.recipe)
    if shortage:
        logs.warning(f"{file.path}: {shortage}")
