"""A model's layers in the library of ``--compile``: all of the encoder, or of a step, in one call.

Legend: R rows of all sentences or hypotheses, D d_model, V vocabulary, N layers, S slots, K beam, H
heads, W width of a head's queries and keys, X of its values, E entries.
"""

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from nmt_cli.model.compiled.kernels import Kernels
from nmt_cli.model.cpu_products import Int8Linear, PackedLinear
from nmt_cli.model.embeddings import Embedding, Positions
from nmt_cli.model.layers import DecoderLayer, EncoderLayer
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe.model_config import ModelConfig, StackShape

# As in layers.c.
TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.int8: 2}
ACTIVATIONS = {"relu": 1, "swish": 2, "gelu": 3, "gelu_tanh": 4}

# Whatever the defaults of the process are: what C gets are addresses.
_floats = partial(torch.empty, dtype=torch.float32, device="cpu")
_integers = partial(torch.tensor, dtype=torch.int64, device="cpu")
_first_places = partial(torch.arange, device="cpu")


class PartOfStep(NamedTuple):
    """Some slots in a step, those of them that are computed, and what these attend to."""

    past: Sequence[tuple[Tensor, Tensor]]  # keys [S, H, W, E] and values [S, H, E, X]
    memory: Sequence[tuple[Tensor, Tensor]]  # likewise
    places: Tensor  # S K, of the new entries in the past; int64
    is_past: Tensor  # S K any, the entries that each hypothesis attends to, the new ones included
    lengths: Tensor  # S, of the memories; int64
    slots: Tensor  # B, those that are computed; int64


class _Matrix(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("blocks", "bias", "scales", "sums")),
        *((name, ctypes.c_long) for name in ("type", "I", "O")),
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
        ("self_attention_output", _Matrix),
        ("memory_queries", _Matrix),
        ("memory_output", _Matrix),
        ("inner", _Matrix),
        ("outer", _Matrix),
        ("self_attention_norm", _Norm),
        ("memory_attention_norm", _Norm),
        ("feed_forward_norm", _Norm),
    )


class _Stack(ctypes.Structure):
    _fields_ = (
        ("layers", ctypes.POINTER(_Layer)),
        ("last", _Norm),
        *((name, ctypes.c_long) for name in ("N", "H", "W", "X", "D", "F")),
        *((name, ctypes.c_long) for name in ("is_pre_norm", "activation", "threads")),
    )


class _Part(ctypes.Structure):
    _fields_ = (
        ("of_layers", ctypes.c_void_p),
        *((name, ctypes.c_long) for name in ("B", "past_room", "memory_room")),
        ("slots", ctypes.c_void_p),
        ("places", ctypes.c_void_p),
        ("is_past", ctypes.c_void_p),
        ("is_past_room", ctypes.c_long),
        ("lengths", ctypes.c_void_p),
    )


class _Embedder:
    """An embedding in the library."""

    def __init__(
        self, positions: Positions, structure: _Embedding, embed: Callable[..., None]
    ) -> None:
        self._positions, self._structure, self._embed = positions, structure, embed
        self._vectors = _floats(0, structure.D)  # of positions

    def rows(self, tokens: Tensor, positions: Tensor, num_positions: int) -> Tensor:
        """Return the rows [S*K, D] of ``tokens`` [S, K] at ``positions`` [S].

        All positions are below ``num_positions``.
        """
        if num_positions > len(self._vectors):
            vectors = self._positions.vectors(num_positions)
            self._vectors = vectors.detach().float().contiguous()
            self._structure.positions = self._vectors.data_ptr()
        rows = _floats(tokens.numel(), self._structure.D)
        self._embed(
            *(ctypes.addressof(self._structure), tokens.contiguous(), positions.contiguous()),
            *(*tokens.shape, rows),
        )
        return rows


class CompiledLayers:
    """The layers and the output's product of a model, with weights in the library's order.

    Matrices are copies, so the model must not change. Whatever its precision, rows are fp32. Not to
    be shared between threads; the library uses as many threads as torch.
    """

    def __init__(self, model: Transformer, kernels: Kernels) -> None:
        """Copy the weights of ``model``, for which ``supports`` is true."""
        self._functions = kernels.functions
        self._kept: list[Tensor] = []  # that structures point to
        config = model.config
        self._encoder = self._stack(
            model.encoder_layers, config, config.encoder, model.encoder_norm
        )
        self._decoder = self._stack(
            model.decoder_layers, config, config.decoder, model.decoder_norm
        )
        decoder_layers = cast(Sequence[DecoderLayer], list(model.decoder_layers))
        self._keys_values = [
            self._matrix(layer.memory_attention.keys_values) for layer in decoder_layers
        ]
        source, target = model.source_embedding, model.target_embedding
        vectors = self._pointer(target.weight)
        self._embed_target = self._embedder(target, vectors)
        if source.weight is not target.weight:
            vectors = self._pointer(source.weight)
        self._embed_source = self._embedder(source, vectors)
        projection = model.output_projection
        self._output = (
            self._matrix_of(model.output_weight, model.output_bias)
            if projection is None
            else self._matrix(projection)
        )

    @staticmethod
    def supports(model: Transformer, kernels: Kernels) -> bool:
        """Return whether the library has products of the precision of ``model``."""
        is_int8 = isinstance(model.output_projection, Int8Linear)
        dtype = torch.int8 if is_int8 else model.output_weight.dtype
        return dtype in TYPES and bool(kernels.functions.has_type(TYPES[dtype]))

    def encode(self, tokens: Tensor, lengths: Sequence[int]) -> list[Tensor]:
        """Return the keys and values [R, H*(W+X)] of the sentences for each decoder layer.

        ``tokens`` [R] are those of sentences of these ``lengths``, one after the other.
        """
        positions, longest = torch.cat(list(map(_first_places, lengths))), max(lengths)
        rows = self._embed_source.rows(tokens[:, None], positions, longest)
        workspace = self._workspace(self._encoder, len(rows), longest)
        self._functions.encode(
            *(ctypes.addressof(self._encoder), _integers(lengths), len(lengths)),
            *(len(rows), longest, rows, workspace),
        )
        return [self._product(matrix, rows) for matrix in self._keys_values]

    def first(
        self, token: int, sources: Sequence[Tensor], lengths: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """Return what to keep [S, N, H*(W+X)] of first tokens, and the logits [S, V] after them.

        They are all ``token``, and attend to themselves and to ``sources``, which ``encode``
        returned for S sentences of these ``lengths``. This is a step of one hypothesis for each
        sentence, whose past is empty.
        """
        number = len(lengths)
        tokens, at_start = _integers([[token]] * number), _integers([[0]] * number)
        all_slots = _first_places(number)
        memory = [self._empty_entries(number, max(lengths)) for _ in sources]
        for rows, entries in zip(sources, memory, strict=True):
            self.write(rows, lengths, all_slots, entries)
        past = [self._empty_entries(number, 1) for _ in sources]
        is_past = torch.ones(number, 1, 1, dtype=torch.bool, device="cpu")
        part = PartOfStep(past, memory, at_start, is_past, _integers(lengths), all_slots)
        logits = self.step(tokens, at_start.squeeze(1), 1, [part])
        kept = [torch.cat([keys.flatten(1), values.flatten(1)], 1) for keys, values in past]
        return torch.stack(kept, dim=1), logits

    def write(
        self,
        rows: Tensor,
        lengths: Sequence[int],
        slots: Tensor,
        entries: tuple[Tensor, Tensor],
    ) -> None:
        """Write ``rows`` [R, H*(W+X)] of sentences of these ``lengths`` into their ``slots`` [S].

        Each takes the first places of its slot in the ``entries``: keys [S, H, W, E] and values
        [S, H, E, X].
        """
        keys, values = entries
        self._functions.write_entries(
            *(ctypes.addressof(self._decoder), rows.contiguous()),
            *(_integers(lengths), slots, len(lengths)),
            *(keys.shape[3], keys, values),
        )

    def step(
        self, tokens: Tensor, positions: Tensor, num_positions: int, parts: Sequence[PartOfStep]
    ) -> Tensor:
        """Return the logits [R, V] of what follows ``tokens`` [B, K] at ``positions`` [B].

        B counts the slots of all ``parts``. The keys and values of the tokens are written into the
        past of each part. All positions are below ``num_positions``.
        """
        beam_size = tokens.shape[1]
        rows = self._embed_target.rows(tokens, positions, num_positions)
        longest = max(keys.shape[3] for part in parts for keys, _ in (part.past[0], part.memory[0]))
        pointers = list(map(_pointers, parts))  # which must live until the call ends
        structures = (_Part * len(parts))(*map(_structure_of, parts, pointers))
        workspace = self._workspace(self._decoder, len(rows), longest)
        self._functions.decode(
            *(ctypes.addressof(self._decoder), ctypes.addressof(structures), len(parts)),
            *(beam_size, len(rows), longest, rows, workspace),
        )
        return self._product(self._output, rows)

    def _product(self, matrix: _Matrix, rows: Tensor) -> Tensor:
        outputs = _floats(len(rows), matrix.O)
        rounded = _floats(self._functions.rounded_size(len(rows), matrix.I))
        self._functions.multiply(
            *(ctypes.addressof(matrix), rows, len(rows), outputs, rounded, torch.get_num_threads())
        )
        return outputs

    def _workspace(self, stack: _Stack, num_rows: int, longest: int) -> Tensor:
        stack.threads = torch.get_num_threads()
        return _floats(self._functions.workspace_size(ctypes.addressof(stack), num_rows, longest))

    def _empty_entries(self, num_slots: int, room: int) -> tuple[Tensor, Tensor]:
        heads, key_width, value_width = self._decoder.H, self._decoder.W, self._decoder.X
        keys = _floats(num_slots, heads, key_width, room)
        return keys, _floats(num_slots, heads, room, value_width)

    def _embedder(self, embedding: Embedding, vectors: int | None) -> "_Embedder":
        structure = _Embedding(
            vectors=vectors,
            after=self._norm(embedding.norm),
            scale=embedding.scale,
            D=embedding.weight.shape[1],
            starts_with_zeros=embedding.starts_with_zeros,
        )
        return _Embedder(embedding.positions, structure, self._functions.embed)

    def _stack(
        self, layers: nn.ModuleList, config: ModelConfig, shape: StackShape, last: nn.Module
    ) -> _Stack:
        made = (_Layer * len(layers))(*map(self._layer, cast(Sequence[_AnyLayer], layers)))
        heads, widths = shape.num_heads, (shape.key_width, shape.value_width)
        activation = ACTIVATIONS[config.activation]
        sizes = (len(layers), heads, *widths, config.d_model, shape.d_ff)
        return _Stack(made, self._norm(last), *sizes, config.norm == "pre", activation, 1)

    def _layer(self, layer: "_AnyLayer") -> _Layer:
        attention, network = layer.self_attention, layer.feed_forward
        made = _Layer(
            queries_keys_values=self._matrix(attention.queries_keys_values),
            self_attention_output=self._matrix(attention.output),
            inner=self._matrix(network.inner),
            outer=self._matrix(network.outer),
            self_attention_norm=self._norm(layer.self_attention_residual.norm),
            feed_forward_norm=self._norm(layer.feed_forward_residual.norm),
        )
        if isinstance(layer, DecoderLayer):
            made.memory_queries = self._matrix(layer.memory_attention.queries)
            made.memory_output = self._matrix(layer.memory_attention.output)
            made.memory_attention_norm = self._norm(layer.memory_attention_residual.norm)
        return made

    def _matrix(self, linear: nn.Module) -> _Matrix:
        assert isinstance(linear, nn.Linear | PackedLinear | Int8Linear)
        if isinstance(linear, Int8Linear):
            return self._matrix_of(linear.integers, linear.bias, linear.scales)
        return self._matrix_of(linear.weight, linear.bias)

    def _matrix_of(
        self, weight: Tensor, bias: Tensor | None, scales: Tensor | None = None
    ) -> _Matrix:
        """Return the matrix of a ``weight`` [O, I] in fp32, bf16, or with ``scales`` in int8."""
        weight, kind = weight.detach().contiguous(), TYPES[weight.dtype]
        outputs, inputs = weight.shape
        size = self._functions.size_of_blocks(kind, inputs, outputs)
        blocks = torch.empty(size, dtype=torch.int8, device="cpu")
        sums = torch.zeros(outputs, dtype=torch.int32, device="cpu")
        self._functions.pack(weight, kind, inputs, outputs, blocks, sums)
        self._kept += [blocks, sums]
        return _Matrix(
            blocks=blocks.data_ptr(),
            bias=self._pointer(bias),
            scales=self._pointer(scales),
            sums=sums.data_ptr(),
            type=kind,
            I=inputs,
            O=outputs,
        )

    def _norm(self, norm: nn.Module) -> _Norm:
        """Return a norm; none if the module is no LayerNorm."""
        if not isinstance(norm, nn.LayerNorm):
            return _Norm()
        return _Norm(self._pointer(norm.weight), self._pointer(norm.bias), norm.eps)

    def _pointer(self, tensor: Tensor | None) -> int | None:
        """Return the address of the numbers of ``tensor`` in fp32."""
        if tensor is None:
            return None
        self._kept.append(tensor.detach().float().contiguous())
        return self._kept[-1].data_ptr()


_AnyLayer = EncoderLayer | DecoderLayer


def _pointers(part: PartOfStep) -> ctypes.Array[ctypes.c_void_p]:
    """Return where the keys and values of the past and of the memory are, layer after layer."""
    of_layers = zip(part.past, part.memory, strict=True)
    found = [each.data_ptr() for pair in of_layers for layer in pair for each in layer]
    return (ctypes.c_void_p * len(found))(*found)


def _structure_of(part: PartOfStep, pointers: ctypes.Array[ctypes.c_void_p]) -> _Part:
    (keys, _), (memory_keys, _) = part.past[0], part.memory[0]
    return _Part(
        *(ctypes.addressof(pointers), len(part.slots), keys.shape[3], memory_keys.shape[3]),
        *(part.slots.data_ptr(), part.places.data_ptr()),
        *(part.is_past.data_ptr(), part.is_past.shape[2], part.lengths.data_ptr()),
    )
