"""A model's layers in the library for CPUs: all of the encoder, or of a step, in one call.

Legend: R rows of all sentences or hypotheses, V vocabulary, N layers, B sentences, S slots, K beam,
H heads, W width of a head's queries and keys, X of its values, T queries, E entries.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from nmt_cli.hardware.cpu import num_threads
from nmt_cli.model.compiled.c_library import INTEGERS, Array, fields
from nmt_cli.model.compiled.packed_model import Embedding, Matrix, PackedModel, Stack
from nmt_cli.model.compiled.past import Past, PastStructure
from nmt_cli.recipe.model_values import StackShape

# Rows whose logits are in memory together: enough to keep the output's product busy.
ROWS_AT_ONCE = {"fp32": 128, "bf16": 64, "int8": 64}


class Sentences(NamedTuple):
    """The tokens [R] of some sentences, one after another, and the lengths of these."""

    tokens: Array  # int64
    lengths: Sequence[int]

    @classmethod
    def of(cls, sentences: Sequence[Sequence[int]]) -> Sentences:
        """Return sentences of the library from lists of tokens."""
        return cls(np.array([*chain.from_iterable(sentences)], np.int64), list(map(len, sentences)))


class _Weights(ctypes.Structure):
    """Where attention weights go."""

    _fields_ = fields("places of_sentences")


class Weights:
    """Memory for the attention weights of some layers: ``arrays`` have N H T E of each sentence."""

    def __init__(
        self,
        shape: StackShape,
        wanted: Sequence[int],
        queries: Sequence[int],
        entries: Sequence[int],
    ) -> None:
        """Make arrays for the ``wanted`` layers that the stack has, counted from 0.

        Sentences have so many ``queries`` (T), which attend to so many ``entries``.
        """
        own = [layer for layer in wanted if layer < shape.num_layers]
        self.arrays = [
            np.empty((len(own), shape.num_heads, *each), np.float32)
            for each in zip(queries, entries, strict=True)
        ]
        self._places = np.full(shape.num_layers, -1)
        self._places[own] = range(len(own))
        self._addresses = np.array([each.ctypes.data for each in self.arrays])
        self.structure = _Weights(self._places.ctypes.data, self._addresses.ctypes.data)


class _Step(ctypes.Structure):
    _fields_ = fields("slots tokens positions past memories", "B")


class _Search(ctypes.Structure):
    _fields_ = fields(
        "stack embedding output listed_weights lists beams found past memories takes_part "
        "positions done rows workspace logits rounded scratch",
        "start rows_at_once E threads num_done",
    )


class Steps(NamedTuple):
    """What steps of all hypotheses that have no rules read and write."""

    beams: int  # the addresses of structures: of the hypotheses, and of candidates for all slots
    candidates: int
    done: Array  # S, gets the slots that are done; int64
    past: PastStructure
    memories: Array  # S 2, the locations of what each slot attends to; int64
    takes_part: Array  # S; slots that are done no longer do; bool
    lists: OutputLists | None  # of each slot, or all tokens may follow
    num_positions: int  # all positions are below
    start: int  # the start mark, which may not follow; negative: it may


class _Sentences(ctypes.Structure):
    _fields_ = (
        *fields("tokens lengths memories"),
        *((name, _Weights) for name in ("within", "to_memory")),
        *fields("", "B R E"),
    )


class _Lists(ctypes.Structure):
    _fields_ = fields("tokens lengths ends", "longest")


class OutputLists:
    """The only tokens that may follow the hypotheses of each slot, for the library."""

    def __init__(self, locations: Sequence[tuple[int, int, int]]) -> None:
        """``locations`` are those of the ``Shortlist`` of each slot."""
        self._locations = np.array(locations).T.copy()
        self.longest = int(self._locations[1].max())
        self._structure = _Lists(*(each.ctypes.data for each in self._locations), self.longest)
        self.address = ctypes.addressof(self._structure)

    def __len__(self) -> int:
        return len(self._locations[0])


class _Embedder:
    """An embedding, with vectors for as many positions as were needed."""

    def __init__(self, packed: PackedModel, side: str, structure: Embedding) -> None:
        self._packed, self._side = packed, side
        self._structure = Embedding.from_buffer_copy(structure)
        self._vectors: Array = np.empty((0, structure.D), np.float32)  # of positions

    def address(self, num_positions: int) -> int:
        """Return the address of the structure, for positions below ``num_positions``."""
        if num_positions > len(self._vectors):
            self._vectors = self._packed.vectors(self._side, num_positions)
            self._structure.positions = self._vectors.ctypes.data
        return ctypes.addressof(self._structure)


class CompiledLayers:
    """The layers of a ``PackedModel`` and its output's product, with memory for one search.

    Whatever the precision, rows are fp32. Not to be shared between threads; the library uses
    ``num_threads`` of its own.

    What a sentence attends to are *entries* [N, H*(W+X)*E]: for each decoder layer the keys
    [H, W, E], then the values [H, E, X]. In place of entries of the past, hypotheses have the
    states [N, D] of recurrent units, if the decoder has these.
    """

    def __init__(self, packed: PackedModel) -> None:
        self._packed, self.functions = packed, packed.c_library.functions
        self.vocabulary_size = packed.vocabulary_size
        self.rows_at_once = ROWS_AT_ONCE[packed.precision]
        self._encoder = Stack.from_buffer_copy(packed.encoder)
        self._decoder = Stack.from_buffer_copy(packed.decoder)
        self._source = _Embedder(packed, "source", packed.source)
        self._target = _Embedder(packed, "target", packed.target)
        self._width = self._decoder.H * (self._decoder.W + self._decoder.X)  # of an entry
        of_one = self._decoder.D if packed.config.is_recurrent else self._width
        self.state_shape = self._decoder.N, of_one  # of what ``first`` keeps
        self.free_memory()

    def encode(self, sentences: Sentences, within: Weights | None = None) -> list[Array]:
        """Return the entries of each sentence, to which the decoder attends.

        ``within`` gets what the sentences attend to within themselves.
        """
        structure = _Sentences(E=max(sentences.lengths))
        if within is not None:
            structure.within = within.structure
        rows = self._rows(self._encoder, self._source, sentences, structure)
        widths = [self._width * length for length in sentences.lengths]
        found: list[Array] = [np.empty((self._decoder.N, each), np.float32) for each in widths]
        places = self.locations(found)
        for number, matrix in enumerate(self._packed.keys_values):
            keys_values = self._product("keys_values", matrix, rows)
            self.functions.write_entries(
                ctypes.addressof(self._decoder), keys_values, number, places, len(found)
            )
        return found

    def decode(
        self,
        targets: Sentences,
        memories: Sequence[Array],
        within: Weights | None = None,
        to_memory: Weights | None = None,
    ) -> Array:
        """Return the rows [R, D] of given targets after the last layer; they see no later tokens.

        ``memories`` are the entries of B sources. ``within`` and ``to_memory`` get what the rows
        attend to. The next call overwrites the rows.
        """
        places = self.locations(memories)
        longest = max(*targets.lengths, places[:, 1].max())
        structure = _Sentences(memories=places.ctypes.data, E=longest)
        for name, weights in (("within", within), ("to_memory", to_memory)):
            if weights is not None:
                setattr(structure, name, weights.structure)
        return self._rows(self._decoder, self._target, targets, structure)

    def token_scores(self, rows: Array, tokens: Array) -> Array:
        """Return the log-probabilities [R] of ``tokens`` [R] by the ``rows`` that predict them."""
        output, most = self._packed.output, min(len(rows), self.rows_at_once)
        rounded = self.functions.rounded_size(most, output.I)
        scores = np.empty(len(rows), np.float32)
        self.functions.score_tokens(
            *(ctypes.addressof(output), rows, tokens, len(rows), most),
            self._reused("logits", (most, self.vocabulary_size)),
            *(self._reused("rounded", (rounded,)), num_threads(), scores),
        )
        return scores

    def _rows(
        self, stack: Stack, embedder: _Embedder, sentences: Sentences, structure: _Sentences
    ) -> Array:
        tokens, lengths = sentences.tokens, np.array(sentences.lengths)
        structure.tokens, structure.lengths = map(INTEGERS.from_param, (tokens, lengths))
        structure.B, structure.R = len(lengths), len(tokens)
        rows = self._reused("rows", (len(tokens), stack.D))
        self.functions.compute_rows(
            *(ctypes.addressof(stack), embedder.address(lengths.max())),
            *(ctypes.addressof(structure), rows),
            self._workspace(stack, len(tokens), structure.E),
        )
        return rows

    def locations(self, entries: Sequence[Array | None]) -> Array:
        """Return the address and the room [any, 2] of each; 0 where there are none."""
        of_each = [
            (0, 0) if each is None else (each.ctypes.data, each.shape[1] // self._width)
            for each in entries
        ]
        return np.array(of_each, np.int64).reshape(-1, 2)

    def new_past(self, num_slots: int, beam_size: int) -> Past:
        """Return an empty past of hypotheses. Raises MemoryError."""
        return Past(self.functions, self._decoder, num_slots, beam_size)

    def first(self, token: int, memories: Sequence[Array]) -> tuple[Array, Array]:
        """Return what is kept of first tokens, and their rows [B, D].

        Kept are entries [B, N, H*(W+X)], or the states [B, N, D] of recurrent units.

        They are all ``token``, and attend to themselves and to ``memories``: the entries of B
        sources. This is a step of one hypothesis for each sentence, whose past is empty. The next
        call overwrites the rows.
        """
        number = len(memories)
        starts = np.zeros((number, *self.state_shape), np.float32)
        zeros, ones = np.zeros(number, np.int64), np.ones(number, np.int64)
        addresses = starts.ctypes.data + starts.strides[0] * np.arange(number)
        own: list[Array] = [np.stack([addresses, ones], axis=1), np.ones(number, np.bool_), ones]
        past = PastStructure(*(each.ctypes.data for each in (*own, zeros, zeros)), number, 1, 1)
        places = self.locations(memories)
        return starts, self.step(np.full(number, token), zeros, np.arange(number), past, places)

    def step(
        self, tokens: Array, positions: Array, slots: Array, past: PastStructure, memories: Array
    ) -> Array:
        """Return the rows [R, D] of the newest tokens after the last layer; R is B*K.

        Of all S slots there are ``tokens`` [S, K] and their ``positions`` [S], the ``past``, which
        gets their entries, and the locations [S, 2] of ``memories``; ``slots`` [B], ascending, are
        computed. The next call overwrites the rows.
        """
        structure = _Step(
            *map(INTEGERS.from_param, (slots, tokens, positions)),
            ctypes.addressof(past),
            INTEGERS.from_param(memories),
            len(slots),
        )
        number, longest = len(slots) * past.K, int(max(past.E, memories[:, 1].max()))
        rows = self._reused("rows", (number, self._decoder.D))
        self.functions.make_step(
            ctypes.addressof(self._decoder),
            self._target.address(int(positions.max()) + 1),
            *(ctypes.addressof(structure), longest, rows),
            self._workspace(self._decoder, number, longest),
        )
        return rows

    def make_steps(self, steps: Steps, most: int, enough: int) -> tuple[int, Array | None]:
        """Make up to ``most`` steps of slots that have no rules, until ``enough`` are done.

        Returns how many are done. If some logits are not numbers, the rows [R, D] of the last step
        come too, which has not continued the hypotheses. Raises MemoryError.
        """
        past, lists, takes_part = steps.past, steps.lists, steps.takes_part
        output, beam_size = self._packed.output, past.K
        number = int(np.count_nonzero(takes_part)) * beam_size
        longest = int(max(past.E + most * beam_size, steps.memories[:, 1].max()))
        at_once = max(beam_size, self.rows_at_once // beam_size * beam_size)
        weights = None
        if lists is None:
            at_once = min(at_once, number)
            logits = self._reused("logits", (at_once, self.vocabulary_size))
            size = self.functions.rounded_size(at_once, output.I)
            rounded = self._reused("rounded", (size,))
        else:
            weights, logits, rounded = self._for_lists(number, lists)
        rows = self._reused("rows", (number, self._decoder.D))
        workspace = self._workspace(self._decoder, number, longest)
        memory = [
            np.empty(len(takes_part), np.int64),
            *(steps.done, rows, workspace, logits, rounded),
            self._reused("scratch", (2 * (number + beam_size),)),
        ]
        search = _Search(
            ctypes.addressof(self._decoder),
            self._target.address(steps.num_positions),
            ctypes.addressof(output),
            None if weights is None else weights.ctypes.data,
            None if lists is None else lists.address,
            *(steps.beams, steps.candidates, ctypes.addressof(past)),
            *(each.ctypes.data for each in (steps.memories, takes_part)),
            *(each.ctypes.data for each in memory),
            *(steps.start, at_once, longest, self._decoder.threads, 0),
        )
        status = self.functions.make_steps(ctypes.addressof(search), most, enough)
        if status < 0:
            raise MemoryError
        last = int(np.count_nonzero(takes_part)) * beam_size
        return search.num_done, rows[:last] if status else None

    def logits(self, rows: Array) -> Array:
        """Return the logits [R, V] of what follows ``rows``; the next call overwrites them."""
        return self._product("logits", self._packed.output, rows)

    def listed_logits(self, rows: Array, lists: OutputLists) -> Array:
        """Return the logits of the tokens in the list of each slot, for rows [S*K, D].

        The array is [S, K * longest list]. A slot with a shorter list has its logits [K, list] at
        the beginning, and the rest is not used. The next call overwrites them.
        """
        output, beam_size = self._packed.output, len(rows) // len(lists)
        weights, listed, rounded = self._for_lists(len(rows), lists)
        self.functions.multiply_lists(
            *(ctypes.addressof(output), weights.ctypes.data, lists.address),
            *(rows, len(lists), beam_size, listed, rounded, num_threads()),
        )
        return listed.reshape(len(lists), -1)

    def _for_lists(self, num_rows: int, lists: OutputLists) -> tuple[Array, Array, Array]:
        """Return the output's weights, and memory for logits [R, longest list] and rounded rows."""
        weights = self._packed.unpack_output()
        listed = self._reused("listed", (num_rows, lists.longest))
        return weights, listed, self._reused("rounded", (num_rows * (1 + weights.shape[1] // 4),))

    def free_memory(self) -> None:
        """Free what the next calls would use again."""
        self._memory = dict[str, Array]()

    def _product(self, name: str, matrix: Matrix, rows: Array) -> Array:
        """Return the product [R, O] in memory that the next call for this name overwrites."""
        size = self.functions.rounded_size(len(rows), matrix.I)
        products = self._reused(name, (len(rows), matrix.O))
        self.functions.multiply(
            *(ctypes.addressof(matrix), rows, len(rows), products),
            *(self._reused("rounded", (size,)), num_threads()),
        )
        return products

    def _workspace(self, stack: Stack, num_rows: int, longest: int) -> Array:
        stack.threads = num_threads()
        size = self.functions.workspace_size(ctypes.addressof(stack), num_rows, longest)
        return self._reused("workspace", (size,))

    def _reused(self, name: str, shape: tuple[int, ...]) -> Array:
        """Return memory that the next call for this name overwrites."""
        size = math.prod(shape)
        if name not in self._memory or size > len(self._memory[name]):
            self._memory.pop(name, None)  # before the larger one is made
            # Pages that are never written take no memory, so few sizes cost nothing.
            self._memory[name] = np.empty(1 << (size - 1).bit_length(), np.float32)
        return self._memory[name][:size].reshape(shape)
