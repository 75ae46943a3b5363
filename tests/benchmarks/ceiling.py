"""The ceiling of a training step: its matrix products alone, forward and backward, run bare.

Legend: S and T rows of a batch's source and target, D d_model, V vocabulary, H heads.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from nmt_cli.model.attention_layout import AttentionLayout
from nmt_cli.model.packing import Packed
from nmt_cli.recipe.sections.model import ModelConfig
from nmt_cli.training.gradient.loss import CHUNK_ROWS


class Product(NamedTuple):
    """``batch`` products [rows, inner] x [inner, columns] of the forward pass."""

    rows: int
    inner: int
    columns: int
    batch: int = 1
    in_attention: bool = False  # which runs in fp32 on a CPU

    @property
    def flops(self) -> int:
        """Multiplications and additions of the product and of its two gradients."""
        return 3 * 2 * self.batch * self.rows * self.inner * self.columns


def forward_products(
    config: ModelConfig, vocabulary_size: int, source: Packed, target: Packed
) -> list[Product]:
    """Return every matrix product of the model's forward pass and its loss."""
    layer = [*_encoder_layer(config, source), *_decoder_layer(config, source, target)]
    return layer * config.num_layers + list(_softmax(config, vocabulary_size, target))


def _encoder_layer(config: ModelConfig, source: Packed) -> Iterator[Product]:
    rows = len(source.tokens)
    yield from _self_attention(config, source)
    yield from _feed_forward(config, rows)


def _decoder_layer(config: ModelConfig, source: Packed, target: Packed) -> Iterator[Product]:
    rows, heads = len(target.tokens), config.num_heads
    yield from _self_attention(config, target)
    yield Product(rows, config.d_model, heads * config.encoder_shape.key_width)
    keys_values = heads * (config.encoder_shape.key_width + config.encoder_shape.value_width)
    yield Product(len(source.tokens), config.d_model, keys_values)
    yield from _attention_core(config, AttentionLayout(target, source))
    yield Product(rows, heads * config.encoder_shape.value_width, config.d_model)
    yield from _feed_forward(config, rows)


def _self_attention(config: ModelConfig, side: Packed) -> Iterator[Product]:
    rows, heads = len(side.tokens), config.num_heads
    yield Product(
        rows,
        config.d_model,
        heads * (2 * config.encoder_shape.key_width + config.encoder_shape.value_width),
    )
    yield from _attention_core(config, AttentionLayout(side, side))
    yield Product(rows, heads * config.encoder_shape.value_width, config.d_model)


def _attention_core(config: ModelConfig, layout: AttentionLayout) -> Iterator[Product]:
    for group in layout.padded.groups:
        batch = config.num_heads * group.num_sentences
        queries, keys = group.query_length, group.key_length
        yield Product(queries, config.encoder_shape.key_width, keys, batch, in_attention=True)
        yield Product(queries, keys, config.encoder_shape.value_width, batch, in_attention=True)


def _feed_forward(config: ModelConfig, rows: int) -> Iterator[Product]:
    yield Product(rows, config.d_model, config.d_ff)
    yield Product(rows, config.d_ff, config.d_model)


def _softmax(config: ModelConfig, vocabulary_size: int, target: Packed) -> Iterator[Product]:
    rows = len(target.tokens)
    size = CHUNK_ROWS[target.tokens.device.type]
    for start in range(0, rows, size):
        yield Product(min(size, rows - start), config.d_model, vocabulary_size)


class BareProducts:
    """Runs products on memory that is there already, with nothing between them."""

    def __init__(self, device: torch.device, precision: str) -> None:
        self._device = device
        self._dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        self._memory: dict[tuple[str, torch.dtype], Tensor] = {}

    def run(self, products: Iterable[Product]) -> None:
        """Do each product and its two gradients: as many operations as a training step needs."""
        for product in products:
            rows, inner, columns, batch, _ = product
            x = self._matrix("x", product, rows, inner)
            weight = self._matrix("weight", product, columns, inner)
            y_gradient = self._matrix("y gradient", product, rows, columns)
            multiply = torch.mm if batch == 1 else torch.bmm
            multiply(x, weight.mT, out=self._matrix("y", product, rows, columns))
            multiply(y_gradient, weight, out=self._matrix("x gradient", product, rows, inner))
            weight_gradient = self._matrix("weight gradient", product, columns, inner)
            multiply(y_gradient.mT, x, out=weight_gradient)

    def _matrix(self, name: str, product: Product, rows: int, columns: int) -> Tensor:
        """Return a part of the memory called ``name``, which grows on first use only."""
        on_cpu = self._device.type == "cpu"
        dtype = torch.float32 if product.in_attention and on_cpu else self._dtype
        shape = (rows, columns) if product.batch == 1 else (product.batch, rows, columns)
        size = product.batch * rows * columns
        memory = self._memory.get((name, dtype))
        if memory is None or len(memory) < size:
            memory = torch.randn(2 * size, device=self._device).to(dtype)
            self._memory[name, dtype] = memory
        return memory[:size].view(shape)
