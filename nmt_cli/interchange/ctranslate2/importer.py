"""Imports a Transformer of CTranslate2.

Its matrices are [out, in] as ours are. Q, K and V of self-attention are one matrix, as are K and V
of attention to the memory.
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt_cli.corpus.tokenizers.normalization import Side
from nmt_cli.interchange.ctranslate2.folder import (
    MODEL,
    Variables,
    read_variables,
)
from nmt_cli.interchange.ctranslate2.options import common_options, take_positions
from nmt_cli.interchange.ctranslate2.vocabularies import (
    marks_of,
    read_vocabularies,
)
from nmt_cli.interchange.files import NO_FILES, SIDES, Array, TextFiles, read_config
from nmt_cli.interchange.imported_model import ImportedModel, tying, vocabulary_matrices
from nmt_cli.interchange.options import refusing
from nmt_cli.interchange.tensors_taken import TensorsTaken
from nmt_cli.interchange.vocabularies import NEVER, Vocabulary, read_sentencepiece
from nmt_cli.messages.errors import UserError
from nmt_cli.recipe.model_config import ModelConfig

HEADS_OF_SPECS = {"": 8, "TransformerBase": 8, "TransformerBig": 16}  # before they were stored
REVISIONS = range(2, 8)  # the first one had TensorFlow's names
FIRST_WITH_SIDES = 5  # before it, both sides had the same heads, norm and activation
MOST_HEADS, WIDEST_HEAD = 4096, 65_536
ROUNDING = 1e-6
OF_THE_SOFTMAX = ("decoder/projection/weight", "decoder/projection/bias")
Linear = dict[str, Array]


def import_ctranslate2(folder: Path, files: TextFiles = NO_FILES) -> ImportedModel:
    """Return the model of ``folder``.

    Raises UserError with all reasons if it is none that can be imported, or if a file cannot be
    read, and DamagedError if a file is damaged.
    """
    files.refuse_any("CTranslate2")
    if not (folder / MODEL).is_file():
        raise UserError(f"{folder} has no {MODEL}; give the folder of a model of CTranslate2.")
    variables, config = read_variables(folder / MODEL), read_config(folder)
    with refusing(folder):
        if variables.spec not in {*HEADS_OF_SPECS, "TransformerSpec"}:
            raise ValueError(f"it is a {variables.spec}, not a Transformer that translates")
        if variables.revision not in REVISIONS:
            raise ValueError(f"the revision {variables.revision} of its names is not known")
        return _model(variables, config, folder)


def _model(variables: Variables, config: Mapping[str, Any], folder: Path) -> ImportedModel:
    """Return the model. Raises ValueError with all reasons if it is none of ours."""
    tensors = TensorsTaken(variables.by_name)
    names: dict[Side, str] = {
        "source": _embeddings("encoder", tensors),
        "target": _embeddings("decoder", tensors),
    }
    shapes = {side: variables.shape(name) for side, name in names.items()}
    if any(len(shape) != len(("rows", "columns")) for shape in shapes.values()):
        raise ValueError("it has no matrices of embeddings for both sides")
    d_model = shapes["target"][1]
    marks = marks_of(config, tensors)
    sizes = {side: shape[0] for side, shape in shapes.items()}
    vocabularies = read_vocabularies(folder, marks, sizes, tensors.reasons)
    has_sides = variables.revision >= FIRST_WITH_SIDES
    options = common_options(tensors, config, d_model, has_sides=has_sides)
    options["decoder_start"] = marks.decoder_start
    taken = _Weights(variables, tensors, options)
    if len(vocabularies) == len(names):
        taken.take_embeddings({side: (names[side], vocabularies[side]) for side in names})
    else:  # only the vocabularies are missing, and these tensors are not unknown
        for name in (*names.values(), *OF_THE_SOFTMAX):
            tensors.take_if_there(name)
    for side in SIDES:
        taken.take_stack(side)
    tensors.refuse_wrong()
    own = vocabularies["source"].pieces if "source_vocabulary_size" in options else None
    return ImportedModel(
        ModelConfig.model_validate(options),
        vocabularies["target"].pieces,
        own,
        read_sentencepiece(folder),
        taken.weights,
    )


def _embeddings(side: str, tensors: TensorsTaken) -> str:
    first = f"{side}/embeddings_0/weight"
    return first if tensors.has(first) else f"{side}/embeddings/weight"


class _Weights:
    """Our weights, taken one by one; ``options`` gets what follows for the architecture."""

    def __init__(
        self, variables: Variables, tensors: TensorsTaken, options: dict[str, Any]
    ) -> None:
        self._variables, self._tensors, self._options = variables, tensors, options
        self._d_model: int = options["d_model"]
        positions = take_positions(tensors, self._d_model)
        self._order: NDArray[np.intp] | None = positions.order
        options.update(positions.options)
        self.weights: dict[str, Array] = {}
        for side, table in zip(SIDES.values(), positions.tables, strict=False):
            self.weights[f"{side}_embedding.positions.weight"] = table

    def take_embeddings(self, sides: Mapping[Side, tuple[str, Vocabulary]]) -> None:
        """Take the embeddings, the matrix of the softmax and its bias."""
        source, target = (
            self._by_pieces(self._tensors.take(name, *self._variables.shape(name)), vocabulary)
            for name, vocabulary in sides.values()
        )
        name, vocabulary = sides["target"]
        size = self._variables.shape(name)[0]
        weight, of_bias = OF_THE_SOFTMAX
        output = self._tensors.take(weight, size, self._d_model)
        output = self._by_pieces(output, vocabulary)
        has_bias = self._tensors.has(of_bias)
        if has_bias or min(vocabulary.rows) < 0:
            bias = np.zeros(size, np.float32)
            if has_bias:
                bias = self._tensors.take(of_bias, size)
            self.weights["output_bias"] = self._by_pieces(bias, vocabulary, NEVER)
            self._options["output_bias"] = True
        source_pieces = sides["source"][1].pieces
        is_shared = source_pieces == vocabulary.pieces
        if not is_shared:
            self._options["source_vocabulary_size"] = len(source_pieces)
        tied = tying(source, target, output, is_shared=is_shared)
        self._options["tied_embeddings"] = tied
        self.weights |= vocabulary_matrices(source, target, output, tied)

    def take_stack(self, side: str) -> None:
        """Take all layers of the encoder or the decoder."""
        options, has_sides = self._options, self._variables.revision >= FIRST_WITH_SIDES
        pattern = re.compile(rf"{side}/layer_(\d+)/")
        numbers = {m[1] for name in self._variables.by_name if (m := pattern.match(name))}
        heads = HEADS_OF_SPECS.get(self._variables.spec, 8)
        heads = int(
            self._tensors.take_number(f"{side}/num_heads" if has_sides else "num_heads", heads)
        )
        d_ff = (*self._variables.shape(f"{side}/layer_0/ffn/linear_0/weight"), 0)[0]
        sizes = {"num_layers": len(numbers), "num_heads": heads, "d_ff": d_ff}
        if not numbers or not 1 <= heads <= MOST_HEADS:
            self._tensors.reasons.append(f"its {side} has {len(numbers)} layers of {heads} heads")
            return
        for key, value in sizes.items():
            if side == "encoder":
                options[key] = value
            elif options.get(key) != value:
                options[f"decoder_{key}"] = value
        if options["norm"] == "pre":
            self._take_norm(f"{side}/layer_norm", f"{side}_norm")
        if options["embedding_norm"]:
            self._take_norm(f"{side}/layernorm_embedding", f"{SIDES[side]}_embedding.norm")
        for number in range(len(numbers)):
            theirs, ours = f"{side}/layer_{number}", f"{side}_layers.{number}"
            self._take_attention(f"{theirs}/self_attention", f"{ours}.self_attention", heads)
            if side == "decoder":
                self._take_attention(f"{theirs}/attention", f"{ours}.memory_attention", heads)
            self._take_feed_forward(f"{theirs}/ffn", f"{ours}.feed_forward", d_ff)

    def _take_norm(self, theirs: str, ours: str) -> None:
        for part, our_part in (("gamma", "weight"), ("beta", "bias")):
            found = self._tensors.take(f"{theirs}/{part}", self._d_model)
            self.weights[f"{ours}.{our_part}"] = self._columns(found)

    def _take_feed_forward(self, theirs: str, ours: str, d_ff: int) -> None:
        has_bias = self._options["feed_forward_biases"]
        inner = self._take_linear(f"{theirs}/linear_0", (d_ff, self._d_model), has_bias=has_bias)
        self._put(f"{ours}.inner", self._reading(inner))
        outer = self._take_linear(f"{theirs}/linear_1", (self._d_model, d_ff), has_bias=has_bias)
        self._put(f"{ours}.outer", self._writing(outer))
        self._take_norm(f"{theirs}/layer_norm", f"{ours}_residual.norm")

    def _take_attention(self, theirs: str, ours: str, heads: int) -> None:
        has_bias, d_model = self._options["attention_biases"], self._d_model
        head_dim = int(self._tensors.take_number(f"{theirs}/head_dim", 0))
        if not 0 <= head_dim <= WIDEST_HEAD:
            self._tensors.reasons.append(f"{theirs} has heads of the width {head_dim}")
            return
        width = head_dim * heads or d_model
        if width != d_model:
            self._options.update(d_k=head_dim, d_v=head_dim)
        parts = {"queries_keys_values": 3}
        if ours.endswith("memory_attention"):
            parts = {"queries": 1, "keys_values": 2}
        for number, (name, count) in enumerate(parts.items()):
            shape = (count * width, d_model)
            linear = self._take_linear(f"{theirs}/linear_{number}", shape, has_bias=has_bias)
            if number == 0:
                linear = self._with_scale(linear, f"{theirs}/queries_scale", width // heads, width)
            self._put(f"{ours}.{name}", self._reading(linear))
        name = f"{theirs}/linear_{len(parts)}"
        output = self._take_linear(name, (d_model, width), has_bias=has_bias)
        self._put(f"{ours}.output", self._writing(output))
        self._take_norm(f"{theirs}/layer_norm", f"{ours}_residual.norm")

    def _with_scale(self, linear: Linear, name: str, head_width: int, width: int) -> Linear:
        """Return a linear layer whose queries, its first ``width`` rows, have our scale."""
        ours = 1.0 / math.sqrt(max(1, head_width))
        factor = self._tensors.take_number(name, ours) / ours
        if abs(factor - 1.0) < ROUNDING or self._tensors.is_wrong:
            return linear
        scaled = {part: array.copy() for part, array in linear.items()}
        for array in scaled.values():
            array[:width] *= factor
        return scaled

    def _take_linear(self, name: str, shape: tuple[int, int], *, has_bias: bool) -> Linear:
        found = {"weight": self._tensors.take(f"{name}/weight", *shape)}
        if has_bias:
            found["bias"] = self._tensors.take(f"{name}/bias", shape[0])
        return found

    def _put(self, name: str, linear: Linear) -> None:
        self.weights.update({f"{name}.{part}": array for part, array in linear.items()})

    def _by_pieces(self, array: Array, vocabulary: Vocabulary, missing: float = 0.0) -> Array:
        """Return the vectors of the pieces in our order; a mark that the model lacks has zeros."""
        if self._tensors.is_wrong:
            return array
        found = vocabulary.rows_of(array, missing)
        return found if found.ndim == 1 else self._columns(found)

    def _reading(self, linear: Linear) -> Linear:
        """Return a layer that reads vectors of the model's width."""
        return {**linear, "weight": self._columns(linear["weight"])}

    def _writing(self, linear: Linear) -> Linear:
        """Return a layer that writes vectors of the model's width."""
        if self._order is None or self._tensors.is_wrong:
            return linear
        return {part: array[self._order] for part, array in linear.items()}

    def _columns(self, array: Array) -> Array:
        if self._order is None or self._tensors.is_wrong:
            return array
        return array[..., self._order]
