"""The time and the operations of a whole training, and what the paper reports of its own."""

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nmt_cli.costs.flops import LengthSums, sum_lengths, training_flops, training_flops_of_sums
from nmt_cli.recipe.model_values import Architecture, ModelShape
from nmt_cli.recipe.training_config import TrainingConfig

ASSUMED_LENGTH = 27  # pieces: about the mean of WMT 2014 English-German with 37,000 of them
PAIRS_AT_ONCE = 1 << 20

Integers = npt.NDArray[np.integer[Any]]


class SentenceLengths(NamedTuple):
    """The sums of the lengths of sentence pairs, in tokens; each sentence has its ``</s>``."""

    sums: LengthSums
    pairs: int
    origin: str  # for the user: where the lengths come from
    pairs_per_epoch: float | None = None  # with the weights of corpora; None without text

    @property
    def mean_source(self) -> float:
        """The mean length of a source sentence."""
        return self.sums.source / self.pairs

    @property
    def mean_target(self) -> float:
        """The mean length of a target sentence."""
        return self.sums.target / self.pairs


def equal_pairs(
    source: int, target: int, origin: str, window: int | None = None
) -> SentenceLengths:
    """Return the lengths of text whose pairs all have so many source and target tokens."""
    return SentenceLengths(sum_lengths([source], [target], window), 1, origin)


def sum_of_text(source: Integers, target: Integers, window: int | None = None) -> LengthSums:
    """Return the sums of a text of any size; ``source`` and ``target`` are lengths [pairs]."""
    ends = range(PAIRS_AT_ONCE, len(source) + PAIRS_AT_ONCE, PAIRS_AT_ONCE)
    parts = (
        sum_lengths(source[end - PAIRS_AT_ONCE : end], target[end - PAIRS_AT_ONCE : end], window)
        for end in ends
    )
    return LengthSums(*map(sum, zip(*parts, strict=True)))


HOUR = 3600.0
PAPER_VOCABULARY = 37_000
MEASURED_TOKENS_PER_STEP = 25_000
PAPER_BASE = Architecture(num_layers=6, d_model=512, d_ff=2048, num_heads=8)
PAPER_BIG = Architecture(num_layers=6, d_model=1024, d_ff=4096, num_heads=16)
PAPER_GPUS = 8
PAPER_SUSTAINED_FLOPS = 9.5e12  # a second on each P100, by the paper's own estimate (section 6.1)


class MeasuredMachine(NamedTuple):
    """A machine whose seconds for a step of base and of big are known."""

    name: str
    of_base: float
    of_big: float
    origin: str  # of these times, for the user

    @property
    def flops_per_second(self) -> float:
        """The rate at which it trains base."""
        sentence = [ASSUMED_LENGTH]
        flops = training_flops(PAPER_BASE, PAPER_VOCABULARY, sentence, sentence)
        return MEASURED_TOKENS_PER_STEP * flops / ASSUMED_LENGTH / self.of_base

    def step_seconds(self, config: ModelShape, tokens_per_step: int) -> float | None:
        """Return the time of a step; None if it is not one of those that were measured."""
        for model, seconds in ((PAPER_BASE, self.of_base), (PAPER_BIG, self.of_big)):
            if _widths(model) == _widths(config) and tokens_per_step == MEASURED_TOKENS_PER_STEP:
                return seconds
        return None


# Section 5.2: 12 hours for 100,000 steps, "about 0.4 seconds" each, and 3.5 days for 300,000.
P100S = MeasuredMachine(
    "8 P100", 12 * HOUR / 100_000, 3.5 * 24 * HOUR / 300_000, "as the paper reports"
)
# In bf16, of random text: tests/benchmarks/results/2026-11-26-gpu-nvidia-h100-80gb-hbm3.md.
H100 = MeasuredMachine("1 H100", 25_000 / 477_371, 25_000 / 243_714, "as measured in bf16")


class PlannedWork(NamedTuple):
    """How much a training computes."""

    steps: int
    target_tokens_per_step: float
    flops_per_step: float  # forward and backward

    @property
    def target_tokens(self) -> float:
        """The target tokens of all steps."""
        return self.steps * self.target_tokens_per_step

    @property
    def flops(self) -> float:
        """The operations of all steps."""
        return self.steps * self.flops_per_step


def planned_training(
    config: ModelShape, vocabulary_size: int, training: TrainingConfig, lengths: SentenceLengths
) -> PlannedWork | None:
    """Return what a training computes if patience does not end it earlier.

    None if its end is given in epochs and the number of sentence pairs is not known.
    """
    pairs_per_step = training.tokens_per_step / max(lengths.mean_source, lengths.mean_target)
    ends = [] if training.max_steps is None else [training.max_steps]
    if training.max_epochs is not None and lengths.pairs_per_epoch is not None:
        ends.append(math.ceil(training.max_epochs * lengths.pairs_per_epoch / pairs_per_step))
    if not ends:
        return None
    flops_per_pair = training_flops_of_sums(config, vocabulary_size, lengths.sums) / lengths.pairs
    return PlannedWork(
        min(ends), pairs_per_step * lengths.mean_target, pairs_per_step * flops_per_pair
    )


def _widths(config: ModelShape) -> tuple[int | None, ...]:
    return (config.d_model, *config.encoder_shape, *config.decoder_shape)


def papers_estimate_of_flops(seconds: float) -> float:
    """Return the FLOPs of a training as the paper counts them: time x GPUs x sustained rate."""
    return seconds * PAPER_GPUS * PAPER_SUSTAINED_FLOPS
