"""The plan of batches that a recipe asks for, and the place in it after a change of the recipe."""

from typing import NamedTuple

from nmt_cli import logs
from nmt_cli.corpus.batching import BatchPlan
from nmt_cli.corpus.binarized import PreparedCorpus
from nmt_cli.recipe.schema import Recipe
from nmt_cli.runs.checkpoint import Progress


class PlanSettings(NamedTuple):
    """The settings that decide which batches a text gives."""

    tokens_per_step: int
    seed: int
    weights: tuple[float, ...]  # of each training corpus


def plan_settings(recipe: Recipe) -> PlanSettings:
    """Return the settings in ``recipe`` that decide the batches."""
    training = recipe.training
    weights = tuple(corpus.weight for corpus in recipe.data.train)
    return PlanSettings(training.tokens_per_step, training.seed, weights)


def plan_batches(settings: PlanSettings, corpus: PreparedCorpus) -> BatchPlan:
    """Return the plan of ``corpus``. Raises UserError if a pair does not fit into a step."""
    return BatchPlan(
        corpus.source.lengths,
        corpus.target.lengths,
        settings.tokens_per_step,
        settings.seed,
        list(zip(corpus.corpus_sizes, settings.weights, strict=True)),
    )


def move_to_plan(progress: Progress, old: BatchPlan, new: BatchPlan) -> None:
    """Replace the batch index of the ``old`` plan by the corresponding one of the ``new`` plan.

    The new index is in the same epoch, after the same share of its batches. Skipped batches keep
    their distance from it, because only this distance decides whether training has diverged.
    """
    epoch, used = old.locate(progress.batch_index)
    before, after = old.batches_of(epoch), new.batches_of(epoch)
    place = _same_share(used, len(before), len(after))
    moved_by = after.start + place - progress.batch_index
    progress.batch_index += moved_by
    progress.skipped = [index + moved_by for index in progress.skipped]
    goes_on = (
        f"{used:,} of the {len(before):,} batches of epoch {epoch + 1:,} were used, and training "
        f"goes on after {place:,} of its {len(after):,} new ones"
        if used
        else f"training goes on at the beginning of epoch {epoch + 1:,}"
    )
    logs.info(f"The changed recipe plans other batches: {goes_on}.")


def _same_share(used: int, num_before: int, num_after: int) -> int:
    """Return about ``num_after * used / num_before``, less than ``num_after``.

    The result is 0 only if ``used`` is 0 or the epoch has one batch, because training validates and
    saves at the beginning of an epoch.
    """
    if used == 0 or num_after == 1:
        return 0
    return min(max(1, round(used * num_after / num_before)), num_after - 1)
