"""The number of trained parameters of a Transformer, by formula, and the memory of training."""

from typing import NamedTuple

from nmt_cli.recipe.model_config import ModelConfig, StackShape

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
    d_model = config.d_model
    is_learned = config.positions == "learned"
    num_vectors = MATRICES[config.tied_embeddings] * vocabulary_size
    if config.source_vocabulary_size is not None:
        num_vectors += config.source_vocabulary_size - vocabulary_size
    return Parameters(
        embeddings=num_vectors * d_model,
        positions=2 * config.max_positions * d_model if is_learned else 0,
        output_bias=vocabulary_size if config.output_bias else 0,
        encoder=_of_stack(config, config.encoder, num_attentions=1),
        decoder=_of_stack(config, config.decoder, num_attentions=2),
    )


def _of_stack(config: ModelConfig, shape: StackShape, *, num_attentions: int) -> StackParameters:
    """Return the parameters of a stack; the second attention of a layer is that to the memory."""
    d_model = config.d_model
    keys, values = (shape.num_heads * w for w in (shape.key_width, shape.value_width))
    attention = 2 * d_model * (keys + values)
    if config.attention_biases:
        attention += 2 * keys + values + d_model
    feed_forward = 2 * d_model * shape.d_ff
    if config.feed_forward_biases:
        feed_forward += shape.d_ff + d_model
    num_norms = shape.num_layers * (num_attentions + 1)
    num_norms += (config.norm == "pre") + config.embedding_norm
    return StackParameters(
        shape.num_layers * attention,
        shape.num_layers * attention * (num_attentions - 1),
        shape.num_layers * feed_forward,
        num_norms * 2 * d_model,  # gain and bias
    )


BYTES_OF_FP32 = 4


def count_moments(config: ModelConfig, num_parameters: int, optimizer: str) -> int:
    """Return the numbers that the optimizer of a recipe keeps for a model of ``num_parameters``.

    Adam has two for each parameter, Muon one for each number in the matrices of the layers.
    """
    if optimizer != "muon":
        return 2 * num_parameters
    biases = {"attention_biases": False, "feed_forward_biases": False}
    without_biases = count_parameters(config.model_copy(update=biases), 1)
    stacks = (without_biases.encoder, without_biases.decoder)
    return 2 * num_parameters - sum(stack.total - stack.norms for stack in stacks)


class TrainingMemory(NamedTuple):
    """Bytes on one device. Weights, gradient and moments are in fp32, also if products are bf16."""

    weights: int
    gradient: int
    moments: int  # of the optimizer
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
    optimizer: str = "adam",
) -> TrainingMemory:
    """Return the memory for micro-batches of at most ``max_tokens`` tokens on each side.

    ``num_keys`` is the length of the sentences that attention compares each token with.
    """
    weights = BYTES_OF_FP32 * num_parameters
    activations = max_tokens * activation_bytes_per_token(config, num_keys)
    average = weights if has_moving_average else 0
    moments = BYTES_OF_FP32 * count_moments(config, num_parameters, optimizer)
    return TrainingMemory(weights, weights, moments, average, activations)


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
