"""A forecast of a training step on GPUs: what was counted, divided by rates.

Rates of the GPU and of connections are assumed; those of the CPU were measured on the host of one
H200. Operations and bytes are those of the simulated GPU in tests/rehearsal;
a test compares them with these formulas. They are of the paper's model, with dropout and in bf16;
options that it does not have cost more.
"""

import math
from typing import NamedTuple

from nmt_cli.costs.flops import BACKWARD_AND_FORWARD, ForwardFlops, forward_flops
from nmt_cli.costs.parameters import BYTES_OF_FP32, count_parameters
from nmt_cli.costs.training_time import SentenceLengths
from nmt_cli.recipe.model_values import ModelShape

# Counted: operations that launch a kernel, for a micro-batch.
OPERATIONS_OF_LAYER = {"encoder": 33, "decoder": 55}
OPERATIONS_OF_CHUNK = 20  # of the loss
OTHER_OPERATIONS = 56
CHUNK_ROWS = 4096
# Counted: bytes that operations read and write which are no products and no attention.
BYTES_OF_WIDTH = {"encoder": 77.3, "decoder": 122.4}  # a token, layer and column of d_model
BYTES_OF_D_FF = 11.6  # a token, layer and column of d_ff
BYTES_OF_EMBEDDING = 76.9  # a token and column of d_model
BYTES_OF_LOGIT = 10.1
BYTES_OF_OUTPUT = 28.0, 10.0  # an entry of the output matrix: once, and for each chunk
BYTES_OF_PARAMETER = 64.2  # half of them in Adam

# Assumed, for an H100 SXM.
SHARE_OF_PEAK = 0.65  # of products
MEMORY_RATE = 2.7e12  # bytes a second: 80 % of the datasheet
# Of the GPU, for a sentence, head and attention, forward and backward: FlashAttention computes
# whole tiles of 128 rows, however short the sentence.
SECONDS_OF_TILE = 0.14e-6
NVLINK_RATE = 360e9  # bytes a second in each direction: 80 % of the datasheet
NETWORK_RATE = 40e9  # of a machine with a port of 400 Gb/s: 80 %
CALL_SECONDS = {"nvlink": 20e-6, "network": 50e-6}
BUCKET_BYTES = 25 << 20  # gradients that are exchanged by one call, at least
BACKWARD_SHARE = 2 / 3  # of a step's computing

# Measured on the virtual host of an H200, which launches a step of base with 400 tokens in 18 ms.
SECONDS_OF_OPERATION = 27e-6  # of the CPU, to launch it
SECONDS_OF_ATTENTION = 90e-6  # of the CPU, for each attention, forward and backward


class Machines(NamedTuple):
    """Equal machines with GPUs that NVLink connects; a network of 400 Gb/s connects machines."""

    number: int
    gpus_of_each: int

    @property
    def gpus(self) -> int:
        """The number of all GPUs."""
        return self.number * self.gpus_of_each


class StepForecast(NamedTuple):
    """A step of one of several equal GPUs, which share its sentences."""

    utilization: float  # the share of the GPU's peak that the step's products of real tokens are
    seconds: float
    operations: int
    memory_bytes: float
    device_seconds: float  # if the CPU is fast enough
    host_seconds: float  # of the CPU, to launch all operations
    exchanged_bytes: float  # that each GPU sends
    calls: int
    exchange_seconds: float

    @property
    def limit(self) -> str:
        """What takes most of the time: GPU, CPU or exchange."""
        times = {
            "GPU": self.device_seconds,
            "CPU": self.host_seconds,
            "exchange": self.exchange_seconds,
        }
        return max(times, key=lambda name: times[name])


def step_forecast(
    config: ModelShape,
    vocabulary_size: int,
    lengths: SentenceLengths,
    tokens_per_step: float,
    machines: Machines,
    peak_flops: float,
) -> StepForecast:
    """Return the forecast of a step with ``tokens_per_step`` on its larger side.

    ``peak_flops`` are those of a GPU for products in bf16. Each GPU has one micro-batch.
    """
    parameters = count_parameters(config, vocabulary_size)
    own_pairs = tokens_per_step / max(lengths.mean_source, lengths.mean_target) / machines.gpus
    source, target = own_pairs * lengths.mean_source, own_pairs * lengths.mean_target
    forward = forward_flops(config, vocabulary_size, lengths.sums)
    share = BACKWARD_AND_FORWARD * own_pairs / lengths.pairs
    operations = operations_of(config, target)
    memory_bytes = bytes_of(config, vocabulary_size, source, target)
    device = (
        share * without_attention_core(forward) / (SHARE_OF_PEAK * peak_flops)
        + memory_bytes / MEMORY_RATE
        + own_pairs * _tiles_of_pair(config) * SECONDS_OF_TILE
    )
    host = operations * SECONDS_OF_OPERATION + _attentions(config) * SECONDS_OF_ATTENTION
    gradient_bytes = BYTES_OF_FP32 * parameters.total
    calls = calls_of(config, vocabulary_size) if machines.gpus > 1 else 0
    exchange = exchange_seconds(gradient_bytes, calls, machines)
    # They are complete last, because the source's vectors get their gradients at the very end.
    last = exchange_seconds(BYTES_OF_FP32 * parameters.embeddings, 1, machines)
    computing = max(device, host)
    seconds = computing + max(last, exchange - BACKWARD_SHARE * computing)
    return StepForecast(
        share * forward.total / (seconds * peak_flops),
        seconds,
        operations,
        memory_bytes,
        device,
        host,
        2 * (machines.gpus - 1) / machines.gpus * gradient_bytes,
        calls,
        exchange,
    )


def operations_of(config: ModelShape, target_tokens: float) -> int:
    """Return the operations of a micro-batch, with Adam, that launch a kernel."""
    of_layers = (
        config.encoder.num_layers * OPERATIONS_OF_LAYER["encoder"]
        + config.decoder.num_layers * OPERATIONS_OF_LAYER["decoder"]
    )
    return of_layers + _chunks(target_tokens) * OPERATIONS_OF_CHUNK + OTHER_OPERATIONS


def bytes_of(
    config: ModelShape, vocabulary_size: int, source_tokens: float, target_tokens: float
) -> float:
    """Return the bytes that a micro-batch, with Adam, moves beside products and attention."""
    d_model, output = config.d_model, vocabulary_size * config.d_model
    once, of_chunk = BYTES_OF_OUTPUT
    of_layers = sum(
        tokens * shape.num_layers * (BYTES_OF_WIDTH[side] * d_model + BYTES_OF_D_FF * shape.d_ff)
        for side, shape, tokens in (
            ("encoder", config.encoder, source_tokens),
            ("decoder", config.decoder, target_tokens),
        )
    )
    return (
        of_layers
        + BYTES_OF_EMBEDDING * d_model * (source_tokens + target_tokens)
        + BYTES_OF_LOGIT * target_tokens * vocabulary_size
        + output * (once + of_chunk * _chunks(target_tokens))
        + BYTES_OF_PARAMETER * count_parameters(config, vocabulary_size).total
    )


def without_attention_core(forward: ForwardFlops) -> int:
    """Return the operations of all products but those of attention itself, which tiles count."""
    return forward.total - forward.encoder.attention_core - forward.decoder.attention_core


def calls_of(config: ModelShape, vocabulary_size: int) -> int:
    """Return about how many calls exchange the gradient; the last one has the embeddings."""
    parameters = count_parameters(config, vocabulary_size)
    of_layers = BYTES_OF_FP32 * (parameters.total - parameters.embeddings)
    half_a_matrix = BYTES_OF_FP32 * config.d_model * config.encoder.d_ff / 2
    return 1 + int(of_layers / (BUCKET_BYTES + half_a_matrix))


def exchange_seconds(num_bytes: float, calls: int, machines: Machines) -> float:
    """Return the time in which all GPUs add up ``num_bytes`` each, as rings do."""
    seconds = 0.0
    for members, rate, latency in (
        (machines.gpus_of_each, NVLINK_RATE, CALL_SECONDS["nvlink"]),
        (machines.number, NETWORK_RATE, CALL_SECONDS["network"]),
    ):
        if members > 1:
            seconds += 2 * (members - 1) / members * num_bytes / rate + calls * latency
    return seconds


def _chunks(target_tokens: float) -> int:
    return math.ceil(target_tokens / CHUNK_ROWS)


def _attentions(config: ModelShape) -> int:
    return config.encoder.num_layers + 2 * config.decoder.num_layers


def _tiles_of_pair(config: ModelShape) -> int:
    """Return the tiles of a sentence pair of at most 128 pieces, forward and backward as one."""
    encoder, decoder = config.encoder, config.decoder
    return encoder.num_layers * encoder.num_heads + 2 * decoder.num_layers * decoder.num_heads
