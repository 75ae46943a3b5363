"""Takes the weights of models of eole and of OpenNMT-py, whose tensors have other names.

Both normalize before each sub-layer, and after the last one. Their projections have biases or not,
as their options state, but these were not always saved, so the tensors decide.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from nmt_cli.corpus.tokenizers.normalization import Side
from nmt_cli.interchange.files import SIDES
from nmt_cli.interchange.imported_model import tying, vocabulary_matrices
from nmt_cli.interchange.known_sinusoids import known_sinusoids, order_from_sines_first
from nmt_cli.interchange.tensors_taken import (
    AttentionNames,
    LayerNames,
    LayersTaken,
    Pair,
    TensorsTaken,
    dotted,
)
from nmt_cli.interchange.vocabularies import Vocabulary

# The sinusoids by their names there, all from position 0.
SINUSOIDS = {"SinusoidalInterleaved": "paper", "SinusoidalConcat": "tensor2tensor"}
CONCATENATED, LEARNED = "SinusoidalConcat", "Learned"
ROUNDING = 5e-3  # of sinusoids that are stored in half precision
IN_LAYER = re.compile(r"(.*?)\.(\d+)\.(.*\.bias)")


def attention_names(attention: str, norm: str) -> AttentionNames:
    """Return the names of an attention and of the norm before it."""
    queries, keys, values, output = (
        dotted(f"{attention}.{part}")
        for part in ("linear_query", "linear_keys", "linear_values", "final_linear")
    )
    return AttentionNames(queries, keys, values, output, dotted(norm))


class Names(NamedTuple):
    """The names of tensors; those of each side are by "encoder" and "decoder"."""

    embeddings: Mapping[str, str]
    sinusoids: Mapping[str, str]
    learned: Mapping[str, str]
    output: Pair
    norms: Mapping[str, Pair]
    layer: Callable[[str, int], LayerNames]


class Embeddings(NamedTuple):
    """The embeddings of a model, from its options."""

    positions: str  # a name in SINUSOIDS, or LEARNED
    is_shared: bool  # the target's matrix is the source's
    is_tied: bool  # that of the softmax is the target's
    has_bias: bool = True  # that of the softmax
    position_shift: int = 0  # the row of the first learned position


class WeightsTaken:
    """Our weights, taken one by one; ``options`` gets what follows for the architecture."""

    def __init__(
        self, tensors: TensorsTaken, names: Names, options: dict[str, Any], embeddings: Embeddings
    ) -> None:
        self._tensors, self._names, self._embeddings = tensors, names, embeddings
        self.options = options
        self._d_model: int = options["d_model"]
        order = None
        if embeddings.positions == CONCATENATED and self._d_model % 2 == 0:
            order = order_from_sines_first(self._d_model)
        self._layers = LayersTaken(tensors, self._d_model, order, may_lack_biases=True)
        self.weights = self._layers.weights

    def take_embeddings(self, vocabularies: Mapping[Side, Vocabulary]) -> None:
        """Take the embeddings, the matrix of the softmax and its bias."""
        of_source, of_target = vocabularies["source"], vocabularies["target"]
        # The rows of the matrices; a mark that the source lacks has none.
        of_source_size, size = (max(each.rows) + 1 for each in (of_source, of_target))
        names = self._names.embeddings
        source = self._tensors.take(names["encoder"], of_source_size, self._d_model)
        shape = (size, self._d_model)
        if self._embeddings.is_shared:
            if size != of_source_size:
                self._tensors.reasons.append("both languages share embeddings, but no vocabulary")
            target = self._tensors.take_same(names["decoder"], names["encoder"], source)
        else:
            target = self._tensors.take(names["decoder"], *shape)
        if self._embeddings.is_tied:
            output = self._tensors.take_same(self._names.output.weight, names["decoder"], target)
        else:
            output = self._tensors.take(self._names.output.weight, *shape)
        bias = np.zeros(size, np.float32)
        if self._embeddings.has_bias:
            bias = self._tensors.take(self._names.output.bias, size)
        if self._tensors.is_wrong:
            return
        source = of_source.rows_of(source)
        target, output, bias = (of_target.rows_of(each) for each in (target, output, bias))
        is_shared = of_source.pieces == of_target.pieces
        if not is_shared:
            self.options["source_vocabulary_size"] = len(of_source.pieces)
        tied = self.options["tied_embeddings"] = tying(source, target, output, is_shared=is_shared)
        for name, matrix in vocabulary_matrices(source, target, output, tied).items():
            self.weights[name] = self._layers.columns(matrix)
        self.weights["output_bias"] = bias

    def take_positions(self) -> None:
        """Take learned positions, or see that the tables are the sinusoids of the options."""
        kind = self._embeddings.positions
        if kind == LEARNED:
            self._take_learned()
            return
        expected = {"sinusoid_frequencies": SINUSOIDS[kind], "first_position": 0}
        self.options |= expected
        for name in self._names.sinusoids.values():
            table = self._tensors.take_if_there(name)
            if table is None:  # they are computed anyhow
                continue
            if not table.ndim or table.size != len(table) * self._d_model:
                self._tensors.reasons.append(f"{name} has the shape {list(table.shape)}")
                continue
            flat = self._layers.columns(table.reshape(-1, self._d_model))
            if not self._tensors.is_wrong and known_sinusoids([flat], ROUNDING) != expected:
                self._tensors.reasons.append(f"{name} is not {kind}, as its options say")

    def _take_learned(self) -> None:
        shift, counts = self._embeddings.position_shift, set()
        for side, name in self._names.learned.items():
            table = self._tensors.take_if_there(name)
            if table is None or table.shape[1:] != (self._d_model,) or len(table) <= shift:
                self._tensors.reasons.append(f"{name} is not a vector for each position")
                continue
            table = self._tensors.take(name, *table.shape)[shift:]
            self.weights[f"{SIDES[side]}_embedding.positions.weight"] = table
            counts.add(len(table))
        if len(counts) > 1:
            self._tensors.reasons.append("its sides have unlike numbers of positions")
        self.options |= {"positions": "learned", "max_positions": max(counts, default=1)}

    def take_stack(self, side: str, attention_width: int) -> None:
        """Take all layers of the encoder or the decoder, and the norm behind them."""
        self._layers.take_norm(self._names.norms[side], f"{side}_norm")
        self._layers.take_stack(side, self.options, self._names.layer, attention_width)

    def leave_out_zeros(self) -> None:
        """Leave out biases that are all zero, and enter into the options which are left."""
        self.options |= self._layers.leave_out_zeros()


def uneven_biases(names: Iterable[str]) -> list[str]:
    """Return the reasons against a model that has a bias in some layers of a stack only."""
    by_stack: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for name in names:
        if match := IN_LAYER.fullmatch(name):
            by_stack[match[1]][match[3]].add(match[2])
    reasons = []
    for stack, biases in by_stack.items():
        layers = set().union(*biases.values())
        reasons += [
            f"only {len(found):,} of {len(layers):,} layers of {stack} have {bias}"
            for bias, found in biases.items()
            if found != layers
        ]
    return reasons
