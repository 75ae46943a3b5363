"""The trained parameters of a Transformer, by formula, and the memory of training."""

import math
from typing import NamedTuple

from nmt_cli.recipe.model_values import ModelShape, StackShape

MATRICES = {"all": 1, "decoder": 2, "none": 3}  # embedding matrices, by model.tied_embeddings


class StackParameters(NamedTuple):
    """The parameters of all layers of the encoder or the decoder."""

    self_attention: int  # or what takes its place
    memory_attention: int  # 0 in the encoder
    feed_forward: int
    norms: int


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
        return vectors + sum(self.encoder) + sum(self.decoder)


Shapes = dict[str, tuple[int, ...]]


def parameter_shapes(config: ModelShape, vocabulary_size: int) -> Shapes:
    """Return the names and shapes of a model's parameters, as ``Transformer`` has them.

    A matrix that several places share has one name: ``output_weight``, if the output shares it.
    """
    width = config.d_model
    shapes: Shapes = {"output_weight": (vocabulary_size, width)}
    if config.output_bias:
        shapes["output_bias"] = (vocabulary_size,)
    source_size = config.source_vocabulary_size or vocabulary_size
    own_matrices = {"source": config.tied_embeddings != "all"}
    own_matrices["target"] = config.tied_embeddings == "none"
    for side, size in (("source", source_size), ("target", vocabulary_size)):
        if own_matrices[side]:
            shapes[f"{side}_embedding.weight"] = size, width
        if config.positions == "learned":
            shapes[f"{side}_embedding.positions.weight"] = config.max_positions, width
        if config.embedding_norm:
            shapes |= _norm(f"{side}_embedding.norm", width)
    for stack, shape in config.stack_shapes.items():
        for number in range(shape.num_layers):
            shapes |= _layer(f"{stack}_layers.{number}", config, shape, stack == "decoder")
        if config.norm == "pre":
            shapes |= _norm(f"{stack}_norm", width)
    return shapes


def _layer(name: str, config: ModelShape, shape: StackShape, has_memory: bool) -> Shapes:
    width, has_bias = config.d_model, config.attention_biases
    keys, values = (shape.num_heads * each for each in (shape.key_width, shape.value_width))
    if has_memory and config.is_recurrent:
        unit = f"{name}.recurrence"
        shapes = _linear(f"{unit}.candidates", width, width, has_bias=False)
        shapes |= _linear(f"{unit}.forget_gates", width, width, has_bias=True)
    else:
        unit = f"{name}.self_attention"
        shapes = _linear(f"{unit}.queries_keys_values", width, 2 * keys + values, has_bias)
        shapes |= _linear(f"{unit}.output", values, width, has_bias)
    shapes |= _norm(f"{unit}_residual.norm", width)
    if has_memory:
        attention = f"{name}.memory_attention"
        shapes |= _linear(f"{attention}.queries", width, keys, has_bias)
        shapes |= _linear(f"{attention}.keys_values", width, keys + values, has_bias)
        shapes |= _linear(f"{attention}.output", values, width, has_bias)
        shapes |= _norm(f"{attention}_residual.norm", width)
    network, has_bias = f"{name}.feed_forward", config.feed_forward_biases
    shapes |= _linear(f"{network}.inner", width, shape.d_ff, has_bias)
    shapes |= _linear(f"{network}.outer", shape.d_ff, width, has_bias)
    return shapes | _norm(f"{network}_residual.norm", width)


def _linear(name: str, inputs: int, outputs: int, has_bias: bool) -> Shapes:
    weight: Shapes = {f"{name}.weight": (outputs, inputs)}
    return weight | {f"{name}.bias": (outputs,)} if has_bias else weight


def _norm(name: str, width: int) -> Shapes:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def count_parameters(config: ModelShape, vocabulary_size: int) -> Parameters:
    """Return the parameters of a model with this vocabulary."""
    shapes = parameter_shapes(config, vocabulary_size)
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    vectors = {name for name in sizes if name.endswith("_embedding.weight")} | {"output_weight"}
    return Parameters(
        embeddings=sum(sizes[name] for name in vectors),
        positions=_sum_of(sizes, "", ".positions."),
        output_bias=sizes.get("output_bias", 0),
        encoder=_of_stack(sizes, "encoder", "source"),
        decoder=_of_stack(sizes, "decoder", "target"),
    )


def _of_stack(sizes: dict[str, int], stack: str, side: str) -> StackParameters:
    """Return the parameters of a stack, with the norm of the embedding that enters it."""
    parts = (".self_attention.", ".memory_attention.", ".feed_forward.", "norm.")
    own = [_sum_of(sizes, f"{stack}_", part) for part in parts]
    own[0] += _sum_of(sizes, f"{stack}_", ".recurrence.")
    own[-1] += _sum_of(sizes, f"{side}_embedding.", "norm.")
    return StackParameters(*own)


def _sum_of(sizes: dict[str, int], start: str, part: str) -> int:
    return sum(size for name, size in sizes.items() if name.startswith(start) and part in name)


BYTES_OF_FP32 = 4


def count_moments(config: ModelShape, num_parameters: int, optimizer: str) -> int:
    """Return the numbers that the optimizer of a recipe keeps for a model of ``num_parameters``.

    Adam has two for each parameter, Muon one for each number in the matrices of the layers.
    """
    if optimizer != "muon":
        return 2 * num_parameters
    shapes = parameter_shapes(config, 1).items()
    matrices = [shape for name, shape in shapes if "_layers." in name and len(shape) == 2]
    return 2 * num_parameters - sum(map(math.prod, matrices))


class TrainingMemory(NamedTuple):
    """Bytes on one device. Weights, gradient and moments are in fp32, also if products are bf16."""

    weights: int
    gradient: int
    moments: int  # of the optimizer
    moving_average: int  # 0 if the recipe has none
    activations: int  # at most


def training_memory(
    config: ModelShape,
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


def activation_bytes_per_token(config: ModelShape, num_keys: int) -> int:
    """Return what a token on each side leaves for the backward pass, at most, in bytes.

    Counted from the layers in fp32: each attention keeps its input, the padded projections, the
    packed values, and either projections and values once more or its weights for ``num_keys`` keys;
    each feed-forward both sides of its ReLU; each residual its sum and its norm.
    """
    encoder, decoder = (
        shape.num_layers * _numbers_of_layer(shape, config.d_model, num_keys, num_attentions)
        for shape, num_attentions in ((config.encoder_shape, 1), (config.decoder_shape, 2))
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
