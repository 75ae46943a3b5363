"""The matrix products of a model in floating-point operations, by formula.

A multiplication with its addition is two operations. Real tokens count, padding does not, nor do
recomputation and whatever is not a matrix product. Causal attention counts in full, as the field
does; the attention core is about 1 % of base. Of attention within a window only the pairs of tokens
within it count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nmt_cli.recipe.model_values import ModelShape, StackShape

if TYPE_CHECKING:
    import numpy.typing as npt
    from numpy.typing import ArrayLike

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
