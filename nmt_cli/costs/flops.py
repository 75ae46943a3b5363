"""The matrix products of a model in floating-point operations, by formula, and training times.

A multiplication with its addition is two operations. Real tokens count, padding does not, nor do
recomputation and whatever is not a matrix product. Causal attention counts in full, as the field
does; the attention core is about 1 % of base. Of attention within a window only the pairs of tokens
within it count.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from nmt_cli.recipe.model_values import Architecture, ModelShape, StackShape
from nmt_cli.recipe.sections.training import TrainingConfig

BACKWARD_AND_FORWARD = 3  # a product's gradient is two products of its size


class LengthSums(NamedTuple):
    """All that FLOPs depend on, of sentence pairs with S source and T target tokens."""

    source: int  # sum of S
    target: int  # sum of T
    source_pairs: int  # of tokens, in the encoder's self-attention: the sum of S * S, or fewer
    target_pairs: int  # in the decoder's: the sum of T * T, or fewer
    product: int  # sum of S * T


class StackFlops(NamedTuple):
    """The operations of all layers of the encoder or the decoder."""

    self_attention: int  # its four projections, or the two of a recurrent unit
    memory_attention: int  # its four projections; 0 in the encoder
    attention_core: int  # products of queries and keys, and of weights and values
    feed_forward: int


class ForwardFlops(NamedTuple):
    """The operations of a forward pass."""

    encoder: StackFlops
    decoder: StackFlops
    softmax: int  # the product with the output matrix

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return sum(self.encoder) + sum(self.decoder) + self.softmax


def sum_lengths(
    source_lengths: ArrayLike, target_lengths: ArrayLike, window: int | None = None
) -> LengthSums:
    """Return the sums of pairs with these lengths, both [pairs]; sums of batches can be added.

    ``window`` is ``model.attention_window``.
    """
    source = np.asarray(source_lengths, dtype=np.int64)
    target = np.asarray(target_lengths, dtype=np.int64)
    pairs = int(source @ source), int(target @ target)
    if window is not None:
        pairs = 2 * _seen(source, window) - int(source.sum()), _seen(target, window)
    return LengthSums(int(source.sum()), int(target.sum()), *pairs, int(source @ target))


def _seen(lengths: npt.NDArray[np.int64], window: int) -> int:
    """Return how many tokens all tokens see: themselves, and ``window`` of those before them."""
    most = np.minimum(window, lengths - 1)
    return int((lengths * (most + 1) - most * (most + 1) // 2).sum())


def forward_flops(config: ModelShape, vocabulary_size: int, lengths: LengthSums) -> ForwardFlops:
    """Return the operations of a forward pass over a batch with these sums, for its window."""
    d_model, encoder, decoder = config.d_model, config.encoder_shape, config.decoder_shape
    source, target = lengths.source, lengths.target
    of_encoder = StackFlops(
        self_attention=encoder.num_layers * source * 2 * _half_of_attention(encoder, d_model),
        memory_attention=0,
        attention_core=encoder.num_layers * 2 * _heads(encoder) * lengths.source_pairs,
        feed_forward=encoder.num_layers * source * 4 * d_model * encoder.d_ff,
    )
    half = _half_of_attention(decoder, d_model)
    compared, of_past = lengths.target_pairs + lengths.product, 2 * half
    if config.is_recurrent:
        compared, of_past = lengths.product, 4 * d_model**2
    of_decoder = StackFlops(
        self_attention=decoder.num_layers * target * of_past,
        memory_attention=decoder.num_layers * (target + source) * half,
        attention_core=decoder.num_layers * 2 * _heads(decoder) * compared,
        feed_forward=decoder.num_layers * target * 4 * d_model * decoder.d_ff,
    )
    return ForwardFlops(of_encoder, of_decoder, target * 2 * d_model * vocabulary_size)


def _heads(shape: StackShape) -> int:
    """Return the width of the keys and values of all heads; it is 2 d_model in the paper."""
    return shape.num_heads * (shape.key_width + shape.value_width)


def _half_of_attention(shape: StackShape, d_model: int) -> int:
    """Return the operations of queries and output of a token; keys and values take as many."""
    return 2 * d_model * _heads(shape)


def training_flops_of_sums(config: ModelShape, vocabulary_size: int, lengths: LengthSums) -> float:
    """Return the operations of forward and backward for a batch with these sums."""
    return float(BACKWARD_AND_FORWARD * forward_flops(config, vocabulary_size, lengths).total)


def training_flops(
    config: ModelShape, vocabulary_size: int, source_lengths: ArrayLike, target_lengths: ArrayLike
) -> float:
    """Return the operations of forward and backward for pairs of these lengths, both [pairs]."""
    sums = sum_lengths(source_lengths, target_lengths, config.attention_window)
    return training_flops_of_sums(config, vocabulary_size, sums)


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


def sum_of_text(source: Integers, target: Integers, window: int | None = None) -> LengthSums:
    """Return the sums of a text of any size; ``source`` and ``target`` are lengths [pairs]."""
    ends = range(PAIRS_AT_ONCE, len(source) + PAIRS_AT_ONCE, PAIRS_AT_ONCE)
    parts = (
        sum_lengths(source[end - PAIRS_AT_ONCE : end], target[end - PAIRS_AT_ONCE : end], window)
        for end in ends
    )
    return LengthSums(*map(sum, zip(*parts, strict=True)))


def lengths_of_text(
    source: Integers, target: Integers, window: int | None, origin: str, pairs_per_epoch: float
) -> SentenceLengths:
    """Return the sums of a text of any size; ``source`` and ``target`` are lengths [pairs]."""
    sums = sum_of_text(source, target, window)
    return SentenceLengths(sums, len(source), origin, pairs_per_epoch)


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
    epochs: float | None = None  # None if the number of sentence pairs is not known

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
    ends = [] if training.last_step is None else [training.last_step]
    if training.max_epochs is not None and lengths.pairs_per_epoch is not None:
        ends.append(math.ceil(training.max_epochs * lengths.pairs_per_epoch / pairs_per_step))
    if not ends:
        return None
    flops_per_pair = training_flops_of_sums(config, vocabulary_size, lengths.sums) / lengths.pairs
    steps, pairs = min(ends), lengths.pairs_per_epoch
    return PlannedWork(
        steps,
        pairs_per_step * lengths.mean_target,
        pairs_per_step * flops_per_pair,
        None if pairs is None else steps * pairs_per_step / pairs,
    )


def _widths(config: ModelShape) -> tuple[int | None, ...]:
    return (config.d_model, *config.encoder_shape, *config.decoder_shape)
