"""A model's layers in the library for CPUs: all of the encoder, or of a step, in one call.

Legend: R rows of all sentences or hypotheses, D d_model, V vocabulary, N layers, S slots, B the
computed ones, K beam, H heads, W width of a head's queries and keys, X of its values, E entries.
"""

import ctypes
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from nmt_cli.model.compiled.kernels import Kernels
from nmt_cli.model.compiled.passes import Pass, Sentences
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


OfLayer = tuple[Tensor, Tensor]  # of slots: keys [S, H, W, E], values [S, H, E, X]


class Step(NamedTuple):
    """A step of the hypotheses of some slots.

    All tensors are contiguous, and their order is that of the structure in layers.c.
    """

    slots: Tensor  # B, those that are computed, ascending; int64
    tokens: Tensor  # S K, the newest ones; int64
    positions: Tensor  # S, of these tokens; int64
    places: Tensor  # S K, of the new entries in the past; int64
    lengths: Tensor  # S, of the memories; int64
    is_past: Tensor  # S K any, the entries that each hypothesis attends to, the new ones included


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
        *((name, ctypes.c_long) for name in ("first", "past_room", "memory_room")),
    )


class _Step(ctypes.Structure):
    _fields_ = (
        ("parts", ctypes.c_void_p),
        *((name, ctypes.c_long) for name in ("num_parts", "B", "K")),
        *((name, ctypes.c_void_p) for name in Step._fields),
        ("is_past_room", ctypes.c_long),
    )


class Parts:
    """The past and the memory of all slots: in parts of some slots each, in all layers."""

    def __init__(
        self,
        first_slots: Sequence[int],
        pasts: Sequence[Sequence[OfLayer]],
        memories: Sequence[Sequence[OfLayer]],
    ) -> None:
        """Store the addresses of tensors, which must live as long as this.

        ``first_slots`` begin the parts; ``pasts`` and ``memories`` have all layers of each part.
        """
        self._kept = [_addresses(*each) for each in zip(pasts, memories, strict=True)]
        rooms = [
            (past[0][0].shape[3], memory[0][0].shape[3])
            for past, memory in zip(pasts, memories, strict=True)
        ]
        of_parts = zip(self._kept, first_slots, rooms, strict=True)
        made = [_Part(ctypes.addressof(kept), first, *room) for kept, first, room in of_parts]
        self.structures = (_Part * len(made))(*made)
        self.largest_room = max(map(max, rooms))


def _addresses(past: Sequence[OfLayer], memory: Sequence[OfLayer]) -> ctypes.Array[ctypes.c_void_p]:
    of_layers = zip(past, memory, strict=True)
    found = [each.data_ptr() for pair in of_layers for layer in pair for each in layer]
    return (ctypes.c_void_p * len(found))(*found)


class _Embedder:
    """An embedding, with vectors for as many positions as were needed."""

    def __init__(self, positions: Positions, structure: _Embedding) -> None:
        self._positions, self._structure = positions, structure
        self._vectors = _floats(0, structure.D)  # of positions

    def address(self, num_positions: int) -> int:
        """Return the address of the structure, for positions below ``num_positions``."""
        if num_positions > len(self._vectors):
            vectors = self._positions.vectors(num_positions)
            self._vectors = vectors.detach().float().contiguous()
            self._structure.positions = self._vectors.data_ptr()
        return ctypes.addressof(self._structure)


class CompiledLayers:
    """The layers and the output's product of a model, with weights in the library's order.

    Matrices are copies, so the model must not change. Whatever its precision, rows are fp32. Not to
    be shared between threads; the library uses as many threads as torch.
    """

    def __init__(self, model: Transformer, kernels: Kernels) -> None:
        """Copy the weights of ``model``: in fp32, in int8, or in bf16 if the CPU has that."""
        self._functions = kernels.functions
        self.free_memory_of_step()
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

    def encode(self, tokens: Tensor, lengths: Sequence[int]) -> list[Tensor]:
        """Return the keys and values [R, H*(W+X)] of the sentences for each decoder layer.

        ``tokens`` [R] are contiguous: those of sentences of these ``lengths``, one after another.
        """
        made = Pass(Sentences(tokens.numpy(), lengths))
        embedding = self._embed_source.address(max(lengths))
        rows = torch.from_numpy(made.run(self._functions, self._encoder, embedding))
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
        at_start, all_slots = _integers([0] * number), _first_places(number)
        memory = [self._empty_entries(number, max(lengths)) for _ in sources]
        for rows, entries in zip(sources, memory, strict=True):
            self.write(rows, lengths, all_slots, entries)
        past = [self._empty_entries(number, 1) for _ in sources]
        step = Step(
            all_slots,
            tokens=_integers([[token]] * number),
            positions=at_start,
            places=at_start,
            lengths=_integers(lengths),
            is_past=torch.ones(number, 1, 1, dtype=torch.bool, device="cpu"),
        )
        logits = self.step(step, Parts([0], [past], [memory]), 1)
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

    def step(self, step: Step, parts: Parts, num_positions: int) -> Tensor:
        """Return the logits [R, V] of what follows the newest tokens.

        Their keys and values are written into the past of ``parts``. All positions are below
        ``num_positions``.
        """
        beam_size, room = step.is_past.shape[1:]
        number = len(step.slots) * beam_size
        logits = _floats(number, self._output.O)
        rows, workspace = self._memory_of_step(number, parts.largest_room)
        structure = _Step(
            *(ctypes.addressof(parts.structures), len(parts.structures)),
            *(len(step.slots), beam_size),
            *(each.data_ptr() for each in step),
            room,
        )
        self._functions.make_step(
            *(ctypes.addressof(self._decoder), self._embed_target.address(num_positions)),
            *(ctypes.addressof(self._output), ctypes.addressof(structure)),
            *(parts.largest_room, rows, workspace, logits),
        )
        return logits

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

    def free_memory_of_step(self) -> None:
        """Free what the next step would use again."""
        self._sizes_of_step, self._of_step = (0, 0, 0), (_floats(0), _floats(0))

    def _memory_of_step(self, num_rows: int, longest: int) -> tuple[Tensor, Tensor]:
        """Return the rows and the workspace of a step; the next step overwrites them."""
        sizes = num_rows, longest, torch.get_num_threads()
        if sizes != self._sizes_of_step:
            rows = _floats(num_rows, self._decoder.D)
            self._of_step = rows, self._workspace(self._decoder, num_rows, longest)
            self._sizes_of_step = sizes
        return self._of_step

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
        return _Embedder(embedding.positions, structure)

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
