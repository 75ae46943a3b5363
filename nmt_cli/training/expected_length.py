"""How long a training and its stages will take, as far as that is known before they are trained.

To count the batches of an epoch, it has to be planned, which takes long for a large text. So those
of later epochs are estimated from their tokens.
"""

import math
from dataclasses import replace
from itertools import accumulate, pairwise
from operator import mul

import numpy as np

from nmt_cli.corpus.binarized import leave_memory
from nmt_cli.corpus.prepared import PreparedCorpus
from nmt_cli.costs.flops import PlannedWork, lengths_of_text, planned_training
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.figures import counted
from nmt_cli.recipe.schema import Recipe
from nmt_cli.recipe.sections.mixing import Until
from nmt_cli.recipe.sections.training import TrainingConfig, ValidationConfig
from nmt_cli.saved.training_state import Progress
from nmt_cli.training.training import Training, sizes_and_weights


def planned_work(recipe: Recipe, corpus: PreparedCorpus) -> PlannedWork | None:
    """Return how much a training computes in all; None if nothing but patience ends it."""
    sides, window = (corpus.source.lengths, corpus.target.lengths), recipe.model.attention_window
    pairs = sum(size * weight for size, weight in sizes_and_weights(recipe, corpus))
    lengths = lengths_of_text(*sides, window, "prepared", pairs)
    return planned_training(recipe.model, corpus.tokenizer.size, recipe.training, lengths)


def stage_that_begins_too_late(training: Training) -> str | None:
    """Return which stage begins too late for this training; None if it reaches all of them."""
    recipe, progress = training.recipe, replace(training.state.progress)
    stages, now = recipe.data.stages, progress.stage
    if now + 1 >= len(stages):
        return None
    epoch, used = training.plan.locate(progress.batch_index)
    num_batches = len(training.plan.batches_of(epoch))
    tokens = tokens_of_epochs(recipe, training.corpus)
    for place, stage in enumerate(stages[now:-1], start=now):
        assert stage.until is not None  # only the last stage has no end
        batches = max(1, round(num_batches * tokens[place] / tokens[now]))
        left = estimated_steps_left(stage.until, recipe.validation, progress, epoch, used, batches)
        step, epoch, used = progress.step + left, epoch - -(used + left) // batches, 0
        progress.step = progress.stage_step = step
        progress.stage_epoch, progress.validations_without_improvement = epoch, 0
        if why := _why_ended(recipe.training, step, epoch):
            return (
                f"data.stages.{place + 1} would begin after about {why} ends training before; "
                "shorten the stages before it, or train longer."
            )
    return None


def _why_ended(training: TrainingConfig, step: int, epoch: int) -> str | None:
    """Return after how many steps or epochs a stage begins, and what ends training before."""
    limit = training.last_step
    if limit is not None and step >= limit:
        by_rate = f"the learning rate, which becomes 0 at step {limit:,},"
        by_key = f"training.max_steps {limit:,}"
        return f"{counted(step, 'step')}, but {by_rate if training.max_steps is None else by_key}"
    limit = training.max_epochs
    if limit is not None and epoch >= limit:
        return f"{counted(epoch, 'epoch')}, but training.max_epochs {limit:,}"
    return None


def estimated_steps_left(
    until: Until,
    validation: ValidationConfig,
    progress: Progress,
    epoch: int,
    used: int,
    num_batches: int,
) -> int:
    """Return how many steps a stage that ends at ``until`` still has; with patience maybe more.

    ``used`` of the ``num_batches`` of this ``epoch`` are behind it. Earlier epochs may have had
    more or fewer batches, if the recipe has changed.
    """
    if until.steps is not None:
        return max(0, progress.stage_step + until.steps - progress.step)
    if until.epochs is not None:
        epochs = progress.stage_epoch + until.epochs - epoch
    else:
        validations = (until.patience or 0) - progress.validations_without_improvement
        if validation.every_steps is not None:
            every = validation.every_steps
            return max(0, validations * every - progress.step % every)
        every = validation.every_epochs or 1
        epochs = validations * every - epoch % every
    return max(0, epochs * num_batches - used)


def refuse_rate_of_zero(training: Training) -> None:
    """Raise UserError if the learning rate becomes 0 before ``training.max_epochs``, for certain.

    Otherwise training ends where it becomes 0.
    """
    config = training.recipe.training
    end, least = config.step_without_rate, least_steps(training)
    if config.max_steps is not None or end is None or least <= end:
        return
    decay = (config.decay_steps or 0) + least - end
    raise UserError(
        f"training.max_epochs {config.max_epochs:,} has at least {least:,} steps of this text, but "
        f"the learning rate becomes 0 at step {end:,} ({config.parts_of_schedule}); raise "
        f"training.decay_steps to about {decay}, or set training.max_steps to {end}."
    )


def least_steps(training: Training) -> int:
    """Return how many steps a training by ``training.max_epochs`` has, if no batch is skipped.

    There may be more: a batch is rarely full, and random shares of corpora vary a little. How many
    epochs are left after a stage that ends by steps or patience is not known, so they do not count.
    """
    recipe, progress = training.recipe, training.state.progress
    per_step, max_epochs = recipe.training.tokens_per_step, recipe.training.max_epochs or 0
    tokens = tokens_of_epochs(recipe, training.corpus)
    batches = [max(1, math.floor(each / per_step)) for each in tokens]
    ends = [stage.until for stage in recipe.data.stages] or [None]
    (epoch, used), step = training.plan.locate(progress.batch_index), progress.step
    begun = progress.stage_epoch
    for number, until in zip(batches[progress.stage :], ends[progress.stage :], strict=True):
        if until is not None and until.epochs is None:
            break
        end = max_epochs if until is None else min(max_epochs, begun + (until.epochs or 0))
        step += max(0, (end - epoch) * number - used)
        epoch, used, begun = end, 0, end
    return step


def tokens_of_epochs(recipe: Recipe, corpus: PreparedCorpus) -> list[float]:
    """Return about how many tokens an epoch of each stage has, on the side that has more."""
    bounds = [*pairwise(accumulate(corpus.corpus_sizes, initial=0))]
    sides = [
        [int(side.lengths[start:end].sum(dtype=np.int64)) for start, end in bounds]
        for side in (corpus.source, corpus.target)
    ]
    leave_memory(corpus.source.lengths, corpus.target.lengths)
    stages = range(max(1, len(recipe.data.stages)))
    weights = [recipe.data.weights(corpus.corpus_sizes, stage) for stage in stages]
    return [max(sum(map(mul, of_stage, side)) for side in sides) for of_stage in weights]
