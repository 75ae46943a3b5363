"""A model's layers in the library of ``--compile``: all of the encoder, or of a step, in one call.

Legend: R rows of all sentences or hypotheses, D d_model, V vocabulary, N layers, S slots, K beam, H
heads, W width of a head's queries and keys, X of its values, E entries.
"""

import ctypes
from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from nmt_cli.model.compiled.library import Kernels
from nmt_cli.model.cpu_products import Int8Linear, PackedLinear
from nmt_cli.model.layers import DecoderLayer, EncoderLayer
from nmt_cli.model.packing import Packed
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe.model_config import ModelConfig, StackShape

# As in layers.c.
ACTIVATIONS = {"relu": 1, "swish": 2, "gelu": 3, "gelu_tanh": 4}
ENCODED_ROWS = 512  # at once, or those of a sentence: what layers compute stays in the cache
ROUNDED_ROW = 8  # bytes that a rounded row takes beside its integers


class PartOfStep(NamedTuple):
    """Some slots in a step, and what they attend to in each layer."""

    past: Sequence[tuple[Tensor, Tensor]]  # keys [S, H, W, E] and values [S, H, E, X]
    memory: Sequence[tuple[Tensor, Tensor]]  # likewise
    places: Tensor  # S K, of the new entries in the past; int64
    is_past: Tensor  # S K any, the entries that each hypothesis attends to, the new ones included
    lengths: Tensor  # S, of the memories; int64


class _Matrix(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("blocks", "bias", "scales", "sums")),
        *((name, ctypes.c_long) for name in ("I", "O")),
    )


class _Norm(ctypes.Structure):
    _fields_ = (
        ("weight", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("epsilon", ctypes.c_float),
    )


class _Embedding(ctypes.Structure):
    _fields_ = (
        ("vectors", ctypes.c_void_p),
        ("positions", ctypes.c_void_p),
        ("after", _Norm),
        ("scale", ctypes.c_float),
        ("D", ctypes.c_long),
        ("starts_with_zeros", ctypes.c_long),
    )


class _Layer(ctypes.Structure):
    _fields_ = (
        ("queries_keys_values", _Matrix),
        ("output", _Matrix),
        ("memory_queries", _Matrix),
        ("memory_output", _Matrix),
        ("inner", _Matrix),
        ("outer", _Matrix),
        ("within", _Norm),
        ("to_memory", _Norm),
        ("feed_forward", _Norm),
    )


class _Stack(ctypes.Structure):
    _fields_ = (
        ("layers", ctypes.POINTER(_Layer)),
        *((name, ctypes.c_long) for name in ("N", "H", "W", "X", "D", "F")),
        *((name, ctypes.c_long) for name in ("is_pre_norm", "activation", "threads")),
    )


class _Part(ctypes.Structure):
    _fields_ = (
        ("of_layers", ctypes.c_void_p),
        *((name, ctypes.c_long) for name in ("S", "past_room", "memory_room")),
        ("places", ctypes.c_void_p),
        ("is_past", ctypes.c_void_p),
        ("is_past_room", ctypes.c_long),
        ("lengths", ctypes.c_void_p),
    )


class CompiledLayers:
    """The layers and the output's product of a model, with weights in the library's order.

    The weights are copies. Not to be shared between threads; the library uses as many threads as
    torch.
    """

    def __init__(self, model: Transformer, kernels: Kernels) -> None:
        """Copy the weights of ``model``, for which ``supports`` is true."""
        self._model, self._library = model, kernels.library
        self._kept: list[Tensor] = []  # that structures point to
        config = model.config
        self._encoder = self._stack(model.encoder_layers, config, config.encoder)
        self._decoder = self._stack(model.decoder_layers, config, config.decoder)
        decoder_layers = cast(Sequence[DecoderLayer], list(model.decoder_layers))
        self._keys_values = [
            self._matrix(layer.memory_attention.keys_values) for layer in decoder_layers
        ]
        target = model.target_embedding
        self._embedding = _Embedding(
            vectors=self._pointer(target.weight),
            after=self._norm(target.norm) if isinstance(target.norm, nn.LayerNorm) else _Norm(),
            scale=target.scale,
            D=config.d_model,
            starts_with_zeros=target.starts_with_zeros,
        )
        projection = model.output_projection
        self._output = (
            self._fp32_matrix(model.output_weight, model.output_bias)
            if projection is None
            else self._matrix(projection)
        )
        self._room = torch.empty(0)

    @staticmethod
    def supports(model: Transformer, kernels: Kernels) -> bool:
        """Return whether the library has products of the precision of ``model``."""
        if isinstance(model.output_projection, Int8Linear):
            return bool(kernels.library.has_int8())
        return model.output_weight.dtype is torch.float32

    def encode(self, source: Packed) -> list[Tensor]:
        """Return the keys and values [R, H*(W+X)] of the sentences for each decoder layer."""
        rows = self._model.source_embedding(source)
        begin = 0
        for lengths in _groups(source.lengths):
            number, longest = sum(lengths), max(lengths)
            room = self._room_for(self._encoder, number, longest)
            self._library.encode(
                *(ctypes.addressof(self._encoder), torch.tensor(lengths), len(lengths)),
                *(number, longest, rows[begin : begin + number], room),
            )
            begin += number
        encoded = self._model.encoder_norm(rows)
        return [self._product(matrix, encoded) for matrix in self._keys_values]

    def first(
        self, tokens: Tensor, memory: Sequence[tuple[Tensor, Tensor]], lengths: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """Return what to keep [S, N, H*(W+X)] of first ``tokens`` [S], and the logits [S, V].

        The tokens attend to themselves and to ``memory``.
        """
        number, shape = len(tokens), self._decoder
        memory = [(keys.contiguous(), values.contiguous()) for keys, values in memory]
        keys = [torch.empty(number, shape.H, shape.W, 1) for _ in memory]
        values = [torch.empty(number, shape.H, 1, shape.X) for _ in memory]
        at_start = torch.zeros(number, 1, dtype=torch.int64)
        part = PartOfStep(
            *(list(zip(keys, values, strict=True)), memory, at_start),
            *(torch.ones(number, 1, 1, dtype=torch.bool), torch.tensor(lengths)),
        )
        logits = self.step(tokens[:, None], at_start.squeeze(1), 1, [part])
        kept = [torch.cat([k.flatten(1), v.flatten(1)], 1) for k, v in part.past]
        return torch.stack(kept, dim=1), logits

    def step(
        self, tokens: Tensor, positions: Tensor, num_positions: int, parts: Sequence[PartOfStep]
    ) -> Tensor:
        """Return the logits [R, V] of what follows ``tokens`` [S, K] at ``positions`` [S].

        All positions are below ``num_positions``. The past gets the keys and values of the tokens.
        """
        num_slots, beam_size = tokens.shape
        number, width = num_slots * beam_size, self._embedding.D
        rows, embedding = torch.empty(number, width), self._embedding
        # It may have grown since the last step.
        table = self._model.target_embedding.positions.vectors(num_positions)
        embedding.positions = table.data_ptr()
        self._library.embed(
            *(ctypes.addressof(embedding), tokens.contiguous(), positions.contiguous()),
            *(num_slots, beam_size, rows),
        )
        longest = max(keys.shape[3] for part in parts for keys, _ in (part.past[0], part.memory[0]))
        pointers = list(map(_pointers, parts))
        structures = (_Part * len(parts))(*map(_structure_of, parts, pointers))
        room = self._room_for(self._decoder, number, longest)
        self._library.decode(
            *(ctypes.addressof(self._decoder), ctypes.addressof(structures), len(parts)),
            *(beam_size, number, longest, rows, room),
        )
        return self._product(self._output, self._model.decoder_norm(rows))

    def _product(self, matrix: _Matrix, rows: Tensor) -> Tensor:
        rows, outputs = rows.contiguous(), rows.new_empty(len(rows), matrix.O)
        room = torch.empty(len(rows) * (matrix.I + ROUNDED_ROW), dtype=torch.uint8)
        self._library.multiply(
            *(ctypes.addressof(matrix), rows, len(rows), outputs, room, torch.get_num_threads())
        )
        return outputs

    def _room_for(self, stack: _Stack, num_rows: int, longest: int) -> Tensor:
        """Return memory for what the layers compute; no two calls may use it together."""
        stack.threads = torch.get_num_threads()
        needed = self._library.room_for(ctypes.addressof(stack), num_rows, longest)
        if needed > len(self._room):
            self._room = torch.empty(needed)
        return self._room

    def _stack(self, layers: nn.ModuleList, config: ModelConfig, shape: StackShape) -> _Stack:
        made = (_Layer * len(layers))(*map(self._layer, cast(Sequence[_AnyLayer], layers)))
        heads, widths = shape.num_heads, (shape.key_width, shape.value_width)
        activation = ACTIVATIONS[config.activation]
        sizes = (len(layers), heads, *widths, config.d_model, shape.d_ff)
        return _Stack(made, *sizes, config.norm == "pre", activation, 1)

    def _layer(self, layer: "_AnyLayer") -> _Layer:
        within, network = layer.self_attention, layer.feed_forward
        made = _Layer(
            queries_keys_values=self._matrix(within.queries_keys_values),
            output=self._matrix(within.output),
            inner=self._matrix(network.inner),
            outer=self._matrix(network.outer),
            within=self._norm(layer.self_attention_residual.norm),
            feed_forward=self._norm(layer.feed_forward_residual.norm),
        )
        if isinstance(layer, DecoderLayer):
            made.memory_queries = self._matrix(layer.memory_attention.queries)
            made.memory_output = self._matrix(layer.memory_attention.output)
            made.to_memory = self._norm(layer.memory_attention_residual.norm)
        return made

    def _matrix(self, linear: nn.Module) -> _Matrix:
        assert isinstance(linear, nn.Linear | PackedLinear | Int8Linear)
        if not isinstance(linear, Int8Linear):
            return self._fp32_matrix(linear.weight, linear.bias)
        integers = linear.integers.contiguous()
        outputs, inputs = integers.shape
        width = self._library.outputs_of_block()
        blocks = torch.empty(_up(outputs, width) * _up(inputs, 4), dtype=torch.int8)
        sums = torch.empty(outputs, dtype=torch.int32)
        self._library.pack_int8(integers, outputs, inputs, blocks, sums)
        pointers = map(self._pointer, (blocks, linear.bias, linear.scales, sums))
        return _Matrix(*pointers, inputs, outputs)

    def _fp32_matrix(self, weight: Tensor, bias: Tensor | None) -> _Matrix:
        weight = weight.detach().contiguous()
        outputs, inputs = weight.shape
        blocks = torch.empty(_up(outputs, self._library.outputs_of_block()) * inputs)
        self._library.pack(weight, outputs, inputs, blocks)
        return _Matrix(self._pointer(blocks), self._pointer(bias), None, None, inputs, outputs)

    def _norm(self, norm: nn.LayerNorm) -> _Norm:
        return _Norm(self._pointer(norm.weight), self._pointer(norm.bias), norm.eps)

    def _pointer(self, tensor: Tensor | None) -> int | None:
        if tensor is None:
            return None
        tensor = tensor.detach().contiguous()
        self._kept.append(tensor)
        return tensor.data_ptr()


_AnyLayer = EncoderLayer | DecoderLayer


def _pointers(part: PartOfStep) -> ctypes.Array[ctypes.c_void_p]:
    """Return where the keys and values of the past and of the memory are, layer after layer."""
    of_layers = zip(part.past, part.memory, strict=True)
    found = [each.data_ptr() for pair in of_layers for layer in pair for each in layer]
    return (ctypes.c_void_p * len(found))(*found)


def _structure_of(part: PartOfStep, pointers: ctypes.Array[ctypes.c_void_p]) -> _Part:
    (keys, _), (memory_keys, _) = part.past[0], part.memory[0]
    return _Part(
        *(ctypes.addressof(pointers), len(part.places), keys.shape[3], memory_keys.shape[3]),
        *(part.places.data_ptr(), part.is_past.data_ptr(), part.is_past.shape[2]),
        part.lengths.data_ptr(),
    )


def _groups(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield ``lengths`` in groups of at most ENCODED_ROWS together, or of one."""
    group: list[int] = []
    for length in lengths:
        if group and sum(group) + length > ENCODED_ROWS:
            yield group
            group = []
        group.append(length)
    yield group


def _up(number: int, step: int) -> int:
    """Return ``number`` rounded up to a multiple of ``step``."""
    return -(-number // step) * step
