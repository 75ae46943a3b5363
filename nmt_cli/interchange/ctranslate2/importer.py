"""Imports a Transformer of CTranslate2, whose tensors have the names that the export gives them."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt_cli.corpus.tokenizers.normalization import Side
from nmt_cli.files.file_names import CTRANSLATE2_MODEL
from nmt_cli.interchange.ctranslate2 import argos
from nmt_cli.interchange.ctranslate2.exporter import NAMES, OUTPUT
from nmt_cli.interchange.ctranslate2.files import (
    Variables,
    marks_of,
    read_variables,
    read_vocabularies,
)
from nmt_cli.interchange.files import (
    NO_FILES,
    SIDES,
    Array,
    TextFiles,
    of_sides,
    read_config,
    refusing,
)
from nmt_cli.interchange.imported_model import ImportedModel
from nmt_cli.interchange.tensor_names import AttentionNames, known_sinusoids, order_from_sines_first
from nmt_cli.interchange.vocabularies import Vocabulary, read_named_models, read_sentencepiece
from nmt_cli.interchange.weights_taken import TensorsTaken, WeightsTaken
from nmt_cli.messages.errors import UserError

HEADS_OF_SPECS = {"": 8, "TransformerBase": 8, "TransformerBig": 16}  # before they were stored
REVISIONS = range(2, 8)  # the first one had TensorFlow's names
FIRST_WITH_SIDES = 5  # before it, both sides had the same heads, norm and activation
MOST_HEADS, WIDEST_HEAD = 4096, 65_536
ROUNDING = 1e-6
ACTIVATIONS = {0: "relu", 1: "gelu_tanh", 2: "swish", 3: "gelu"}
DEFAULT_EPSILON = 1e-5
# Variables about word alignments, and about models with several embeddings of a side.
UNIMPORTANT = ("alignment_layer", "alignment_heads", "embeddings_merge")
OFF = (
    *("encoder/multi_query_attention", "decoder/alibi", "decoder/alibi_use_positive_positions"),
    "decoder/scale_alibi",
)
TOLERANCE = 1e-5  # of sinusoids in fp32


def import_ctranslate2(path: Path, files: TextFiles = NO_FILES) -> ImportedModel:
    """Return the model at ``path``, a folder or a package of Argos Translate.

    Raises UserError with all reasons if it cannot be imported, or if a file cannot be
    read, and DamagedError if a file is damaged.
    """
    files.refuse_vocabularies("CTranslate2")
    with argos.unpacked(path) as unpacked:
        package = argos.package_of(unpacked)
        folder = unpacked if package is None else package / argos.MODEL
        if not (folder / CTRANSLATE2_MODEL).is_file():
            raise UserError(
                f"{folder} has no {CTRANSLATE2_MODEL}; give the folder of a model of CTranslate2."
            )
        models = read_named_models(files) or read_sentencepiece(folder)
        if models is None and folder.absolute().name == argos.MODEL:
            models = read_sentencepiece(folder.absolute().parent)
        with refusing(folder):
            model = _read_model(folder, models)
            if package is None:
                return model
            languages = argos.languages_of(package, is_cut=models is not None)
            return model.with_languages(*languages)


def _read_model(folder: Path, models: Mapping[Side, bytes] | None) -> ImportedModel:
    """Return the model. Raises ValueError with all reasons if it cannot be represented."""
    variables, config = read_variables(folder / CTRANSLATE2_MODEL), read_config(folder)
    if variables.spec not in {*HEADS_OF_SPECS, "TransformerSpec"}:
        raise ValueError(f"it is a {variables.spec}, not a Transformer that translates")
    if variables.revision not in REVISIONS:
        raise ValueError(f"the revision {variables.revision} of its names is not known")
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
    vocabularies = read_vocabularies(
        folder, marks, sizes, tensors.reasons, are_words=models is None
    )
    has_sides = variables.revision >= FIRST_WITH_SIDES
    positions = _take_positions(tensors, d_model)
    options = {
        **_common_options(tensors, config, d_model, has_sides=has_sides),
        **_sizes(variables, tensors, has_sides=has_sides),
        **positions.options,
        "decoder_start": marks.decoder_start,
    }
    taken = _Weights(tensors, options, positions.order)
    if positions.tables:
        taken.put_learned_positions(positions.tables)
    if len(vocabularies) == len(names):
        _take_pieces(taken, names, shapes, vocabularies)
    else:  # only the vocabularies are missing, and these tensors are not unknown
        for name in (*names.values(), *OUTPUT):
            tensors.take_if_there(name)
    if "num_layers" in options:
        for side in SIDES:
            taken.take_stack(side, NAMES)
    return taken.model(vocabularies, models)


def _embeddings(side: str, tensors: TensorsTaken) -> str:
    first = f"{side}/embeddings_0/weight"
    return first if tensors.has(first) else f"{side}/embeddings/weight"


def _take_pieces(
    taken: "_Weights",
    names: Mapping[Side, str],
    shapes: Mapping[Side, tuple[int, ...]],
    vocabularies: Mapping[Side, Vocabulary],
) -> None:
    """Take the embeddings, the matrix of the softmax and its bias."""
    tensors, size = taken.tensors, shapes["target"][0]
    matrices = [tensors.take(name, *shapes[side]) for side, name in names.items()]
    matrices.append(tensors.take(OUTPUT.weight, size, taken.d_model))
    bias = None
    if tensors.has(OUTPUT.bias):
        bias = tensors.take(OUTPUT.bias, size)
        taken.options["output_bias"] = True
    taken.put_pieces(vocabularies, matrices, bias)


def _sizes(variables: Variables, tensors: TensorsTaken, *, has_sides: bool) -> dict[str, int]:
    """Return the sizes of both sides; {} and a reason if one has none."""
    of_both = []
    for side in SIDES:
        pattern = re.compile(rf"{side}/layer_(\d+)/")
        layers = len({m[1] for name in variables.by_name if (m := pattern.match(name))})
        stored = f"{side}/num_heads" if has_sides else "num_heads"
        heads = int(tensors.take_number(stored, HEADS_OF_SPECS.get(variables.spec, 8)))
        if not layers or not 1 <= heads <= MOST_HEADS:
            tensors.reasons.append(f"its {side} has {layers} layers of {heads} heads")
            return {}
        d_ff = (*variables.shape(f"{side}/layer_0/ffn/linear_0/weight"), 0)[0]
        of_both.append({"num_layers": layers, "num_heads": heads, "d_ff": d_ff})
    encoder, decoder = of_both
    sizes: dict[str, int] = {}
    for key, value in encoder.items():
        sizes |= of_sides(key, value, decoder[key])
    return sizes


class _Weights(WeightsTaken):
    """Our weights, with heads of any width and with any scale of the queries."""

    def take_attention(self, names: AttentionNames, ours: str, width: int) -> None:
        """Take an attention; its heads are ``width`` wide together, unless the file has another."""
        theirs, heads = names.norm.weight.removesuffix("/layer_norm/gamma"), "num_heads"
        if ours.startswith("decoder"):
            heads = f"decoder_{heads}" if f"decoder_{heads}" in self.options else heads
        num_heads = self.options[heads]
        head_dim = int(self.tensors.take_number(f"{theirs}/head_dim", 0))
        if not 0 <= head_dim <= WIDEST_HEAD:
            self.tensors.reasons.append(f"{theirs} has heads of the width {head_dim}")
            return
        if head_dim * num_heads not in (0, width):
            width = head_dim * num_heads
            self.options |= {"d_k": head_dim, "d_v": head_dim}
        super().take_attention(names, ours, width)
        scale = 1.0 / math.sqrt(max(1, width // num_heads))
        factor = self.tensors.take_number(f"{theirs}/queries_scale", scale) / scale
        if abs(factor - 1.0) < ROUNDING or self.tensors.is_wrong:
            return
        inputs = "queries" if ours.endswith("memory_attention") else "queries_keys_values"
        for name in (f"{ours}.{inputs}.weight", f"{ours}.{inputs}.bias"):
            if name in self.weights:
                self.weights[name] = self.weights[name].copy()  # which a file may hold twice
                self.weights[name][:width] *= factor


class Positions(NamedTuple):
    """How a model marks positions."""

    options: dict[str, Any]
    order: NDArray[np.intp] | None = None  # our dimensions among theirs, if they differ
    tables: tuple[Array, ...] = ()  # of learned vectors


def _common_options(
    tensors: TensorsTaken, config: Mapping[str, Any], d_model: int, *, has_sides: bool
) -> dict[str, Any]:
    """Return the options that encoder and decoder have to share.

    ``has_sides`` is false for older models, which store these options once for both sides.
    """
    if config.get("add_source_bos"):
        tensors.reasons.append("it adds a mark at the start of the source")
    epsilon = config.get("layer_norm_epsilon")
    options: dict[str, Any] = {
        "d_model": d_model,
        "source_eos": bool(config.get("add_source_eos", False)),
        "norm_epsilon": DEFAULT_EPSILON if epsilon is None else epsilon,
    }
    of_sides = [_of_side(tensors, side, d_model, has_sides=has_sides) for side in SIDES]
    for name, value in of_sides[1].items():
        if of_sides[0][name] != value:
            tensors.reasons.append(f"encoder and decoder differ in {name}")
        options[name] = value
    for name in OFF:
        if tensors.take_number(name, 0.0):
            tensors.reasons.append(f"it has {name}")
    for name in UNIMPORTANT:
        for place in (name, *(f"{side}/{name}" for side in SIDES)):
            tensors.take_if_there(place)
    return options


def _of_side(tensors: TensorsTaken, side: str, d_model: int, *, has_sides: bool) -> dict[str, Any]:
    prefix = f"{side}/" if has_sides else ""
    number = tensors.take_number(f"{prefix}activation", 0.0)
    if number not in ACTIVATIONS:
        tensors.reasons.append(f"its activation has the number {number:g}")
    scale = tensors.take_number(f"{side}/scale_embeddings", 1.0)
    if scale not in (0.0, 1.0) and not math.isclose(scale, math.sqrt(d_model), rel_tol=1e-6):
        tensors.reasons.append(f"it multiplies its embeddings by {scale:g}")
    return {
        "norm": "pre" if tensors.take_number(f"{prefix}pre_norm", 1.0) else "post",
        "activation": ACTIVATIONS.get(int(number), "relu"),
        "scale_embeddings": scale != 0.0,
        "embedding_norm": tensors.has(f"{side}/layernorm_embedding/gamma"),
        "attention_biases": tensors.has(f"{side}/layer_0/self_attention/linear_0/bias"),
        "feed_forward_biases": tensors.has(f"{side}/layer_0/ffn/linear_0/bias"),
    }


def _take_positions(tensors: TensorsTaken, d_model: int) -> Positions:
    """Return how the model marks positions.

    Without tables, CTranslate2 computes sines, then cosines, with Tensor2Tensor's frequencies from
    position 1. Tables that are no sinusoids become learned positions.
    """
    names = [f"{side}/position_encodings/encodings" for side in SIDES]
    tables = [table for name in names if (table := tensors.take_if_there(name)) is not None]
    halves = None
    if d_model % 2 == 0:
        halves = order_from_sines_first(d_model)
        if not tables:
            return Positions({"sinusoid_frequencies": "tensor2tensor", "first_position": 1}, halves)
    shapes = {table.shape for table in tables}
    if len(tables) != len(SIDES) or len(shapes) > 1 or tables[0].shape[1:] != (d_model,):
        tensors.reasons.append("its positions are not a vector of the model's width each")
        return Positions({})
    if not all(np.isfinite(table).all() for table in tables):
        tensors.reasons.append("its positions hold a number that is not finite")
        return Positions({})
    for index in (None, halves) if halves is not None else ():
        ordered = [table if index is None else table[:, index] for table in tables]
        found = known_sinusoids(ordered, TOLERANCE)
        if found is not None:
            return Positions(found, index)
    return Positions({}, None, tuple(tables))
