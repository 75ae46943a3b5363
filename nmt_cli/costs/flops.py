"""The matrix products of a model in floating-point operations, by formula.

A multiplication with its addition is two operations. Real tokens count, padding does not, nor do
recomputation and whatever is not a matrix product. Causal attention counts in full, as the field
does; the attention core is about 1 % of base.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nmt_cli.recipe.model_config import ModelConfig

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

BACKWARD_AND_FORWARD = 3  # a product's gradient is two products of its size


class LengthSums(NamedTuple):
    """All that FLOPs depend on, of sentence pairs with S source and T target tokens."""

    source: int  # sum of S
    target: int  # sum of T
    source_squared: int  # sum of S * S
    target_squared: int  # sum of T * T
    product: int  # sum of S * T


class StackFlops(NamedTuple):
    """The operations of all layers of the encoder or the decoder."""

    self_attention: int  # its four projections
    memory_attention: int  # likewise; 0 in the encoder
    attention_core: int  # products of queries and keys, and of weights and values
    feed_forward: int

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return sum(self)


class ForwardFlops(NamedTuple):
    """The operations of a forward pass."""

    encoder: StackFlops
    decoder: StackFlops
    softmax: int  # the product with the output matrix

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return self.encoder.total + self.decoder.total + self.softmax


def sum_lengths(source_lengths: ArrayLike, target_lengths: ArrayLike) -> LengthSums:
    """Return the sums of pairs with these lengths, both [pairs]; sums of batches can be added."""
    source = np.asarray(source_lengths, dtype=np.int64)
    target = np.asarray(target_lengths, dtype=np.int64)
    products = (source @ source, target @ target, source @ target)
    return LengthSums(int(source.sum()), int(target.sum()), *map(int, products))


def forward_flops(config: ModelConfig, vocabulary_size: int, lengths: LengthSums) -> ForwardFlops:
    """Return the operations of a forward pass over a batch with these sums."""
    layers, d_model = config.num_layers, config.d_model
    heads = config.num_heads * (config.key_width + config.value_width)  # 2 d_model in the paper
    half = 2 * d_model * heads  # queries and output of a token; keys and values are as much
    feed_forward = 4 * d_model * config.d_ff
    encoder = StackFlops(
        self_attention=layers * lengths.source * 2 * half,
        memory_attention=0,
        attention_core=layers * 2 * heads * lengths.source_squared,
        feed_forward=layers * lengths.source * feed_forward,
    )
    decoder = StackFlops(
        self_attention=layers * lengths.target * 2 * half,
        memory_attention=layers * (lengths.target + lengths.source) * half,
        attention_core=layers * 2 * heads * (lengths.target_squared + lengths.product),
        feed_forward=layers * lengths.target * feed_forward,
    )
    return ForwardFlops(encoder, decoder, lengths.target * 2 * d_model * vocabulary_size)


def training_flops_of_sums(config: ModelConfig, vocabulary_size: int, lengths: LengthSums) -> float:
    """Return the operations of forward and backward for a batch with these sums."""
    return float(BACKWARD_AND_FORWARD * forward_flops(config, vocabulary_size, lengths).total)


def training_flops(
    config: ModelConfig,
    vocabulary_size: int,
    source_lengths: ArrayLike,
    target_lengths: ArrayLike,
) -> float:
    """Return the operations of forward and backward for pairs of these lengths, both [pairs]."""
    sums = sum_lengths(source_lengths, target_lengths)
    return training_flops_of_sums(config, vocabulary_size, sums)
