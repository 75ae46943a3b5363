"""The size of a first model and the length of its training, by the text and the time there is."""

import math
from typing import NamedTuple

from nmt_cli.recipe.reading.reader import read_recipe

# The recipe to extend, by the most pairs that it is for.
PARENTS = (("small", 200_000), ("medium", 2_000_000), ("base", math.inf))
# Pieces by the most pairs; 29,000 captions do well with 8,000.
VOCABULARIES = ((15_000, 4000), (300_000, 8000), (2_000_000, 16_000), (math.inf, 32_000))
# 29,000 captions are learnt in 40 epochs (recipes/README.md); more text needs fewer.
EPOCHS, EPOCHS_OF_PAIRS, EXPONENT = 40, 30_000, 0.35
SHARE_OF_STEPS = 0.8  # of the hours; the others are for validation, saving and the final test
FEWEST_STEPS = 2000  # if smaller steps, or a smaller model, make them possible
LEAST_STEPS = 200


class Measured(NamedTuple):
    """What the trial of a recipe on the text found."""

    target_tokens_per_second: float
    source_pieces: float  # of a pair, in the mean
    target_pieces: float


class Plan(NamedTuple):
    """The numbers of a training."""

    tokens_per_step: int
    max_steps: int
    warmup_steps: int
    epochs: float
    hours: float
    hours_of_text: float  # that the text needs, if there is time


def parents_for(num_pairs: int) -> list[str]:
    """Return the shipped recipe that suits a text of this size, and the smaller ones behind it."""
    names = [name for name, _ in PARENTS]
    suiting = sum(num_pairs > most for _, most in PARENTS)
    return names[suiting::-1]


def vocabulary_size(num_pairs: int) -> int:
    """Return how many pieces suit a text of this size."""
    return next(size for most, size in VOCABULARIES if num_pairs <= most)


def plan_training(parent: str, num_pairs: int, measured: Measured, hours: float | None) -> Plan:
    """Return the training of ``parent`` on ``num_pairs`` within ``hours``, if they are given."""
    training = read_recipe(parent).recipe.training
    epochs = EPOCHS * (EPOCHS_OF_PAIRS / max(num_pairs, EPOCHS_OF_PAIRS)) ** EXPONENT
    tokens_per_hour = SHARE_OF_STEPS * 3600 * measured.target_tokens_per_second
    wanted = epochs * num_pairs * measured.target_pieces
    target_tokens = wanted if hours is None else min(wanted, hours * tokens_per_hour)
    share_of_target = measured.target_pieces / max(measured.source_pieces, measured.target_pieces)
    size = training.tokens_per_step
    if target_tokens < FEWEST_STEPS * size * share_of_target:
        size //= 2  # rather more steps than larger ones
    max_steps = max(LEAST_STEPS, round(target_tokens / (size * share_of_target)))
    target_tokens = max_steps * size * share_of_target
    return Plan(
        tokens_per_step=size,
        max_steps=max_steps,
        warmup_steps=min(training.warmup_steps, max_steps // 6),
        epochs=target_tokens / (num_pairs * measured.target_pieces),
        hours=target_tokens / tokens_per_hour,
        hours_of_text=wanted / tokens_per_hour,
    )
