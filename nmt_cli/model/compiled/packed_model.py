"""A model's weights in the order in which the library for CPUs reads them.

Legend: I inputs, O outputs, V vocabulary, D d_model.
"""

import ctypes
import math
import mmap
from collections.abc import Iterable, Iterator

import numpy as np

from nmt_cli.costs.parameters import parameter_shapes
from nmt_cli.model.compiled.c_library import Array, Library, fields
from nmt_cli.model.sinusoids import sinusoids
from nmt_cli.recipe.model_values import ModelShape, StackShape

# As in layers.c.
TYPES = {"fp32": 0, "bf16": 1, "int8": 2}
ACTIVATIONS = {"relu": 1, "swish": 2, "gelu": 3, "gelu_tanh": 4}

ALIGNMENT = 64  # bytes: a line of a CPU's cache
OUTPUT, VECTORS = "output_weight", "vectors of the output's pieces"
MADV_POPULATE_WRITE = 23  # asm-generic/mman-common.h
FIRST_POSITIONS = 256  # of sinusoids, at least


class Matrix(ctypes.Structure):
    """A weight matrix of a product."""

    _fields_ = fields("blocks bias scales sums", "type I O")


class Norm(ctypes.Structure):
    """A LayerNorm; without a weight there is none."""

    _fields_ = (*fields("weight bias"), ("epsilon", ctypes.c_float))


class Embedding(ctypes.Structure):
    """The embedding of one side. Whoever uses it points it to vectors of enough positions."""

    _fields_ = (
        *fields("vectors positions shared"),
        ("after", Norm),
        ("scale", ctypes.c_float),
        *fields("", "D starts_with_zeros"),
    )


# Of a layer: the fields of its structure, in order, by the names of the model's parameters.
MATRICES = {
    "self_attention.queries_keys_values": "queries_keys_values",
    "self_attention.output": "self_attention_output",
    "recurrence.candidates": "candidates",
    "recurrence.forget_gates": "forget_gates",
    "memory_attention.queries": "memory_queries",
    "memory_attention.output": "memory_output",
    "feed_forward.inner": "inner",
    "feed_forward.outer": "outer",
}
NORMS = {
    f"{name}_residual.norm": f"{name}_norm"
    for name in ("self_attention", "recurrence", "memory_attention", "feed_forward")
}


class Layer(ctypes.Structure):
    """A layer of the encoder or the decoder."""

    _fields_ = (
        *((name, Matrix) for name in MATRICES.values()),
        *((name, Norm) for name in NORMS.values()),
    )


class Stack(ctypes.Structure):
    """The encoder or the decoder. Whoever uses it sets the number of ``threads``."""

    _fields_ = (
        *fields("layers"),
        ("last", Norm),
        *fields("", "N H W X D F is_pre_norm activation window threads"),
    )


class PackedModel:
    """A Transformer for translating on a CPU.

    All weights are in one anonymous mapping. It never changes, so forked processes have no copy of
    their own, and threads may share it.
    """

    def __init__(
        self,
        config: ModelShape,
        vocabulary_size: int,
        weights: Iterable[tuple[str, Array]],
        precision: str,
        library: Library,
    ) -> None:
        """Pack ``weights``, in fp32 with the names of ``parameter_shapes``, at a ``precision``.

        Each is packed before the next one is taken, and none is kept. The precision is fp32, int8,
        or bf16 if the CPU has instructions for it. Raises ValueError if a weight is missing or has
        another shape.
        """
        self.config, self.precision, self.c_library = config, precision, library
        self.vocabulary_size = vocabulary_size
        self._shapes = parameter_shapes(config, vocabulary_size)
        self._places = dict[str, int]()  # in the mapping, in bytes
        size = 0
        for part, size_of_part in self._parts():
            self._places[part] = size
            size += -(-size_of_part // ALIGNMENT) * ALIGNMENT
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._mapping = mmap.mmap(-1, size, flags=flags)
        self._memory: Array = np.frombuffer(self._mapping, np.uint8)
        # The kernel gives all pages at once in half the time of one after the other at their first
        # writes. Huge pages would take less or, if memory is fragmented, several times as long.
        # Called through ctypes, which gives up Python's lock. Kernels before 5.14 refuse it: pages
        # then come at their first writes.
        address = ctypes.c_void_p(self._memory.ctypes.data)
        ctypes.CDLL(None).madvise(address, ctypes.c_size_t(size), MADV_POPULATE_WRITE)
        missing = set(self._shapes)
        for name, weight in weights:
            self._pack(name, weight)
            missing.remove(name)
        if missing:
            raise ValueError(f"{', '.join(sorted(missing))} missing")
        self._memory.flags.writeable = False
        self._make_structures()
        self._sinusoids: Array = np.empty((0, config.d_model), np.float32)
        self._unpacked_output: Array | None = None

    def vectors(self, side: str, num_positions: int) -> Array:
        """Return the vectors [any, D] of the first positions of a side, at least so many.

        ``side`` is "source" or "target". Raises ValueError if the model has fewer positions.
        """
        if self.config.positions == "learned":
            learned = self._floats(f"{side}_embedding.positions.weight")
            if num_positions > len(learned):
                raise ValueError(
                    f"a sentence of {num_positions:,} pieces is longer than "
                    f"model.max_positions {len(learned):,}"
                )
            return learned
        table, config = self._sinusoids, self.config
        if num_positions > len(table):
            # Doubled, so that lengths that grow one by one do not rebuild the table each time.
            number = max(num_positions, 2 * len(table), FIRST_POSITIONS)
            kind = config.sinusoid_frequencies, config.first_position
            table = self._sinusoids = self._rounded(sinusoids(number, config.d_model, *kind))
        return table

    def unpack_output(self) -> Array:
        """Return the output's weights [V, bytes], one output after the other, for shortlists.

        They are made once. Processes that are forked afterwards share them.
        """
        if self._unpacked_output is None:
            output, functions = self.output, self.c_library.functions
            size = functions.size_of_weights(output.type, output.I)
            memory = np.zeros(output.O * size + ALIGNMENT, np.uint8)
            first = -memory.ctypes.data % ALIGNMENT
            weights: Array = memory[first : first + output.O * size].reshape(output.O, size)
            functions.unpack(ctypes.addressof(output), weights.ctypes.data)
            self._unpacked_output = weights
        return self._unpacked_output

    def _is_matrix(self, name: str) -> bool:
        """Return whether rows are multiplied by this parameter."""
        return name == OUTPUT or ("_layers." in name and len(self._shapes[name]) == 2)

    @property
    def _has_vectors(self) -> bool:
        """Whether the vectors of tokens that the output shares are there a second time.

        In int8 they are not rounded.
        """
        return self.precision == "int8" and self.config.tied_embeddings != "none"

    def _parts(self) -> Iterator[tuple[str, int]]:
        """Yield the name and the size in bytes of each part of the mapping."""
        size_of_blocks = self.c_library.functions.size_of_blocks
        for name, shape in self._shapes.items():
            if not self._is_matrix(name):
                yield name, 4 * math.prod(shape)
                continue
            outputs, inputs = shape
            yield name, size_of_blocks(TYPES[self.precision], inputs, outputs)
            if self.precision == "int8":
                yield f"{name}.scales", 4 * outputs
                yield f"{name}.sums", 4 * outputs
        if self._has_vectors:
            yield VECTORS, 4 * math.prod(self._shapes[OUTPUT])

    def _pack(self, name: str, weight: Array) -> None:
        shape = self._shapes[name]
        if weight.shape != shape:
            raise ValueError(f"{name} is {list(weight.shape)}, not {list(shape)}")
        if not self._is_matrix(name):
            self._floats(name)[...] = self._rounded(weight)
            return
        outputs, inputs = shape
        scales, sums = (self._address(f"{name}.{part}") for part in ("scales", "sums"))
        self.c_library.functions.pack(
            np.ascontiguousarray(weight, np.float32),
            *(TYPES[self.precision], inputs, outputs),
            *(self._address(name), scales, sums),
        )
        if name == OUTPUT and self._has_vectors:
            self._floats(VECTORS)[...] = weight

    def _rounded(self, numbers: Array) -> Array:
        """Return ``numbers`` in fp32, rounded to bf16 if that is the precision: half to even."""
        numbers = np.ascontiguousarray(numbers, np.float32)
        if self.precision != "bf16":
            return numbers
        bits = numbers.view(np.uint32)
        half = (bits >> 16 & 1) + np.uint32(0x7FFF)
        return (bits + half & np.uint32(0xFFFF0000)).view(np.float32)

    def _floats(self, part: str) -> Array:
        """Return a part of the mapping, in fp32."""
        shape = self._shapes[OUTPUT if part == VECTORS else part]
        place = self._places[part]
        return self._memory[place : place + 4 * math.prod(shape)].view(np.float32).reshape(shape)

    def _address(self, part: str) -> int | None:
        """Return the address of a part of the mapping; None if the model does not have it."""
        place = self._places.get(part)
        return None if place is None else self._memory.ctypes.data + place

    def _make_structures(self) -> None:
        config = self.config
        self.output = self._matrix(OUTPUT, "output_bias")
        self.source = self._embedding("source")
        self.target = self._embedding("target")
        self._layers: list[ctypes.Array[Layer]] = []  # whose addresses the stacks have
        self.encoder = self._stack("encoder", config.encoder_shape)
        self.decoder = self._stack("decoder", config.decoder_shape)
        self.keys_values = [
            self._linear(f"decoder_layers.{number}.memory_attention.keys_values")
            for number in range(config.decoder_shape.num_layers)
        ]

    def _embedding(self, side: str) -> Embedding:
        config, own = self.config, f"{side}_embedding.weight"
        made = Embedding(
            vectors=self._address(own),
            after=self._norm(f"{side}_embedding.norm"),
            scale=math.sqrt(config.d_model) if config.scale_embeddings else 1.0,
            D=config.d_model,
            starts_with_zeros=side == "target" and config.decoder_start == "zeros",
        )
        if own not in self._shapes:
            made.vectors, made.shared = self._address(VECTORS), ctypes.addressof(self.output)
        return made

    def _stack(self, name: str, shape: StackShape) -> Stack:
        config, widths = self.config, (shape.key_width, shape.value_width)
        layers = [self._layer(f"{name}_layers.{number}") for number in range(shape.num_layers)]
        self._layers.append((Layer * len(layers))(*layers))
        return Stack(
            ctypes.addressof(self._layers[-1]),
            self._norm(f"{name}_norm"),
            *(len(layers), shape.num_heads, *widths, config.d_model, shape.d_ff),
            *(config.norm == "pre", ACTIVATIONS[config.activation], shape.window or 0, 1),
        )

    def _layer(self, name: str) -> Layer:
        return Layer(
            *(self._linear(f"{name}.{each}") for each in MATRICES),
            *(self._norm(f"{name}.{each}") for each in NORMS),
        )

    def _linear(self, name: str) -> Matrix:
        return self._matrix(f"{name}.weight", f"{name}.bias")

    def _matrix(self, weight: str, bias: str) -> Matrix:
        """Return the matrix of a weight [O, I]; an empty one if the model does not have it."""
        outputs, inputs = self._shapes.get(weight, (0, 0))
        parts = (weight, bias, f"{weight}.scales", f"{weight}.sums")
        return Matrix(*map(self._address, parts), TYPES[self.precision], inputs, outputs)

    def _norm(self, name: str) -> Norm:
        """Return a norm; none if the model does not have it."""
        weight, bias = (self._address(f"{name}.{part}") for part in ("weight", "bias"))
        return Norm(weight, bias, self.config.norm_epsilon)
