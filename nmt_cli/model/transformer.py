"""The Transformer (section 3).

Legend: S source rows, T target rows, D d_model.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.model.attention_layout import AttentionLayout
from nmt_cli.model.dropout import KernelSeed
from nmt_cli.model.embeddings import Embedding
from nmt_cli.model.layers import DecoderLayer, EncoderLayer, final_norm, new_embedding_weight
from nmt_cli.model.packing import Packed
from nmt_cli.model.skip_init import SkipInit
from nmt_cli.model.stored_weights import LARGEST, SMALLEST_SCALE
from nmt_cli.recipe.model_values import ModelShape


class Transformer(nn.Module):
    """Encoder and decoder over packed batches.

    ``vocabulary_size`` is that of the target, and of the source if they share a vocabulary.
    """

    rounding: Callable[[Tensor], Tensor] | None = None  # of factors; see ``round_to_int8``
    kernel_seed: KernelSeed | None = None  # of dropout in kernels of Triton

    def __init__(self, config: ModelShape, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.vocabulary_size = vocabulary_size
        source_size = config.source_vocabulary_size or vocabulary_size
        source_weight = new_embedding_weight(source_size, config.d_model)
        target_weight, output_weight = source_weight, source_weight
        if config.tied_embeddings != "all":
            target_weight = output_weight = new_embedding_weight(vocabulary_size, config.d_model)
        if config.tied_embeddings == "none":
            output_weight = new_embedding_weight(vocabulary_size, config.d_model)
        self.source_embedding = Embedding(source_weight, config)
        zeros = config.decoder_start == "zeros"
        self.target_embedding = Embedding(target_weight, config, starts_with_zeros=zeros)
        self.output_weight = output_weight
        has_bias = config.output_bias
        self.output_bias = nn.Parameter(torch.zeros(vocabulary_size)) if has_bias else None
        self.encoder_layers = nn.ModuleList(
            EncoderLayer(config) for _ in range(config.encoder_shape.num_layers)
        )
        self.encoder_norm = final_norm(config)
        self.decoder_layers = nn.ModuleList(
            DecoderLayer(config) for _ in range(config.decoder_shape.num_layers)
        )
        self.decoder_norm = final_norm(config)

    def forward(self, source: Packed, target_input: Packed) -> Tensor:
        """Return the decoder's output [T, D] before the softmax projection."""
        if self.training and self.kernel_seed is not None:
            self.kernel_seed.draw(target_input.tokens.device)
        return self.decode(target_input, self.encode(source), source)

    def encode(self, source: Packed) -> Tensor:
        """Return the memory [S, D] that the decoder attends to."""
        layout = AttentionLayout(source, source)
        rows = self.source_embedding(source)
        for layer in self.encoder_layers:
            rows = layer(rows, layout)
        return self.encoder_norm(rows)

    def decode(self, target_input: Packed, memory: Tensor, source: Packed) -> Tensor:
        """Return the decoder's output [T, D]; each row attends to its past and the memory."""
        within = AttentionLayout(target_input, target_input)
        to_memory = AttentionLayout(target_input, source)
        rows = self.target_embedding(target_input)
        for layer in self.decoder_layers:
            rows = layer(rows, memory, within, to_memory)
        return self.decoder_norm(rows)

    def project(self, rows: Tensor) -> Tensor:
        """Return the logits [T, vocabulary] of the decoder's output [T, D]."""
        return F.linear(*self.factors(rows, self.output_weight), self.output_bias)

    def factors(self, rows: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return the factors of a product of ``rows`` and a ``weight``, rounded if it rounds."""
        if self.rounding is None:
            return rows, weight
        return self.rounding(rows), self.rounding(weight)


def build_transformer(
    config: ModelShape, vocabulary_size: int, weights: Mapping[str, NDArray[Any]]
) -> Transformer:
    """Return a model in evaluation mode that uses the memory of ``weights``, all its parameters."""
    with SkipInit():
        model = Transformer(config, vocabulary_size)
    for name, parameter in model.named_parameters():
        parameter.data = torch.from_numpy(weights[name])
    return model.eval()


class _Rounding(torch.autograd.Function):
    """Rounding to int8 in training: quantization-aware training (Jacob et al. 2018).

    All factors of products by weights, and embeddings, are rounded as the library for CPUs and
    models stored in int8 round them: each row of activations, and the weights of each output, to
    integers of -127 to 127 times a scale of its own, which maps the largest of them to 127. So none
    is clipped, and the gradient passes the rounding as if it were not there (straight-through,
    Bengio et al. 2013).
    """

    @staticmethod
    def forward(_: Any, rows: Tensor) -> Tensor:
        wide = rows.to(torch.promote_types(rows.dtype, torch.float32))
        largest = wide.abs().amax(-1, keepdim=True)
        scales = largest.clamp(min=SMALLEST_SCALE) / LARGEST
        return (wide * scales.reciprocal()).round_().mul_(scales).to(rows.dtype)

    @staticmethod
    def backward(_: Any, *gradients: Any) -> Any:
        return gradients[0]


def rounded_to_int8(rows: Tensor) -> Tensor:
    """Return ``rows`` [.., I], each rounded to int8 with a scale of its own, in their type.

    The gradient is that of ``rows`` themselves.
    """
    return _Rounding.apply(rows)  # type: ignore[no-untyped-call]


def round_to_int8(model: Transformer) -> None:
    """Let ``model`` round from now on, in training and evaluation."""
    model.rounding = rounded_to_int8
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.forward = functools.partial(_linear, module)  # type: ignore[method-assign]
        elif isinstance(module, Embedding):
            module.rounding = rounded_to_int8


def _linear(linear: nn.Linear, rows: Tensor) -> Tensor:
    return F.linear(rounded_to_int8(rows), rounded_to_int8(linear.weight), linear.bias)
