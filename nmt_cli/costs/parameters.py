"""The number of trained parameters of a Transformer, by formula, part by part."""

from typing import NamedTuple

from nmt_cli.recipe.model_config import ModelConfig

MATRICES = {"all": 1, "decoder": 2, "none": 3}  # embedding matrices, by model.tied_embeddings


class StackParameters(NamedTuple):
    """The parameters of all layers of the encoder or the decoder."""

    self_attention: int
    memory_attention: int  # 0 in the encoder
    feed_forward: int
    norms: int

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return sum(self)


class Parameters(NamedTuple):
    """The parameters of a model."""

    embeddings: int  # matrices of the source, the target and the softmax, each counted once
    positions: int  # learned vectors of both sides
    output_bias: int
    encoder: StackParameters
    decoder: StackParameters

    @property
    def total(self) -> int:
        """The sum of all parts."""
        vectors = self.embeddings + self.positions + self.output_bias
        return vectors + self.encoder.total + self.decoder.total


def count_parameters(config: ModelConfig, vocabulary_size: int) -> Parameters:
    """Return the parameters of a model with this vocabulary."""
    d_model, num_layers = config.d_model, config.num_layers
    keys, values = (config.num_heads * w for w in (config.key_width, config.value_width))
    attention = 2 * d_model * (keys + values)
    if config.attention_biases:
        attention += 2 * keys + values + d_model
    feed_forward = 2 * d_model * config.d_ff
    if config.feed_forward_biases:
        feed_forward += config.d_ff + d_model
    attention, feed_forward = num_layers * attention, num_layers * feed_forward
    norm = 2 * d_model  # gain and bias
    others = norm * ((config.norm == "pre") + config.embedding_norm)  # of each stack
    return Parameters(
        embeddings=MATRICES[config.tied_embeddings] * vocabulary_size * d_model,
        positions=2 * config.max_positions * d_model if config.positions == "learned" else 0,
        output_bias=vocabulary_size if config.output_bias else 0,
        encoder=StackParameters(attention, 0, feed_forward, 2 * num_layers * norm + others),
        decoder=StackParameters(attention, attention, feed_forward, 3 * num_layers * norm + others),
    )
