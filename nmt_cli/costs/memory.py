"""The memory that training takes on one device, by formula."""

from typing import NamedTuple

from nmt_cli.recipe.model_config import ModelConfig, StackShape

BYTES_OF_FP32 = 4
MOMENTS = 2  # Adam's, for each parameter


class TrainingMemory(NamedTuple):
    """Bytes on one device. Weights, gradient and moments are in fp32, also if products are bf16."""

    weights: int
    gradient: int
    adam_moments: int
    moving_average: int  # 0 if the recipe has none
    activations: int  # at most

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return sum(self)


def training_memory(
    config: ModelConfig,
    num_parameters: int,
    max_tokens: int,
    num_keys: int,
    *,
    has_moving_average: bool,
) -> TrainingMemory:
    """Return the memory for micro-batches of at most ``max_tokens`` tokens on each side.

    ``num_keys`` is the length of the sentences that attention compares each token with.
    """
    weights = BYTES_OF_FP32 * num_parameters
    activations = max_tokens * activation_bytes_per_token(config, num_keys)
    average = weights if has_moving_average else 0
    return TrainingMemory(weights, weights, MOMENTS * weights, average, activations)


def activation_bytes_per_token(config: ModelConfig, num_keys: int) -> int:
    """Return what a token on each side leaves for the backward pass, at most, in bytes.

    Counted from the layers in fp32: each attention keeps its input, the padded projections, the
    packed values, and either projections and values once more or its weights for ``num_keys`` keys;
    each feed-forward both sides of its ReLU; each residual its sum and its norm.
    """
    encoder, decoder = (
        shape.num_layers * _numbers_of_layer(shape, config.d_model, num_keys, num_attentions)
        for shape, num_attentions in ((config.encoder, 1), (config.decoder, 2))
    )
    embeddings = (12 if config.embedding_norm else 8) * config.d_model
    return BYTES_OF_FP32 * (encoder + decoder + embeddings)


def _numbers_of_layer(shape: StackShape, d_model: int, num_keys: int, num_attentions: int) -> int:
    values = shape.num_heads * shape.value_width
    projections = 2 * shape.num_heads * shape.key_width + values
    weights = shape.num_heads * num_keys
    attention = d_model + projections + values + max(projections + 2 * values, weights)
    residual = 4 * d_model
    feed_forward = 3 * shape.d_ff + d_model
    return num_attentions * attention + feed_forward + (num_attentions + 1) * residual
