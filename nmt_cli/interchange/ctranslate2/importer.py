"""Imports a Transformer of CTranslate2, whose tensors have the names that the export gives them."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmt_cli.corpus.tokenizers.normalization import Side
from nmt_cli.files.file_names import CTRANSLATE2_MODEL
from nmt_cli.interchange.ctranslate2 import argos
from nmt_cli.interchange.ctranslate2.exporter import NAMES, OUTPUT
from nmt_cli.interchange.ctranslate2.files import (
    Variables,
    read_variables,
    read_vocabularies,
    special_tokens_of,
)
from nmt_cli.interchange.files import NO_FILES, SIDES, TextFiles, read_config
from nmt_cli.interchange.imported_model import ImportedModel
from nmt_cli.interchange.options import merged, refusing
from nmt_cli.interchange.tensor_names import known_sinusoids, order_from_sines_first
from nmt_cli.interchange.vocabularies import models_in, read_models
from nmt_cli.interchange.weights_taken import TensorsTaken, WeightsTaken
from nmt_cli.messages.errors import UserError

HEADS_OF_SPECS = {"": 8, "TransformerBase": 8, "TransformerBig": 16}  # before they were stored
REVISIONS = range(2, 8)  # the first one had TensorFlow's names
FIRST_WITH_SIDES = 5  # before it, both sides had the same heads, norm and activation
MOST_HEADS, WIDEST_HEAD = 4096, 65_536
ROUNDING = 1e-6
QUERIES_SCALE = re.compile(
    r"(encoder|decoder)/layer_(\d+)/(self_attention|attention)/queries_scale"
)
QUERIES = {
    "self_attention": "self_attention.queries_keys_values",
    "attention": "memory_attention.queries",
}
ACTIVATIONS = {0: "relu", 1: "gelu_tanh", 2: "swish", 3: "gelu"}
DEFAULT_EPSILON = 1e-5
# Variables about word alignments, and about models with several embeddings of a side.
UNIMPORTANT = ("alignment_layer", "alignment_heads", "embeddings_merge")
OFF = (
    "encoder/multi_query_attention",
    "decoder/alibi",
    "decoder/alibi_use_positive_positions",
    "decoder/scale_alibi",
)
TOLERANCE = 1e-5  # of sinusoids in fp32


def import_ctranslate2(path: Path, files: TextFiles = NO_FILES) -> ImportedModel:
    """Return the model at ``path``, a folder or a package of Argos Translate.

    Raises UserError with all reasons if it cannot be imported, or if a file cannot be
    read, and DamagedError if a file is damaged.
    """
    files.refuse_vocabularies("CTranslate2")
    package = argos.package_of(path)
    folder = path if package is None else package / argos.MODEL
    if not (folder / CTRANSLATE2_MODEL).is_file():
        raise UserError(
            f"{folder} has no {CTRANSLATE2_MODEL}; give the folder of a model of CTranslate2."
        )
    paths = files.models() or models_in(folder)
    if paths is None and folder.absolute().name == argos.MODEL:
        paths = models_in(folder.absolute().parent)
    models = read_models(paths)
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
    names = [f"{name}/weight" for name in ("encoder/embeddings_0", "decoder/embeddings")]
    if not tensors.has(names[0]):
        names[0] = "encoder/embeddings/weight"
    shapes = [variables.shape(name) for name in names]
    if any(len(shape) != 2 for shape in shapes):
        raise ValueError("it has no matrices of embeddings for both sides")
    (source_size, _), (target_size, d_model) = shapes
    special = special_tokens_of(config, tensors)
    vocabularies = read_vocabularies(
        folder,
        special,
        {"source": source_size, "target": target_size},
        tensors.reasons,
        are_words=models is None,
    )
    has_sides = variables.revision >= FIRST_WITH_SIDES
    options = {
        **_common_options(tensors, config, d_model, has_sides=has_sides),
        "decoder_start": special.decoder_start,
    }
    heads = {
        side: int(tensors.take_number(f"{side}/num_heads" if has_sides else "num_heads", default))
        for side, default in dict.fromkeys(SIDES, HEADS_OF_SPECS.get(variables.spec, 8)).items()
    }
    taken = WeightsTaken(tensors, options | _sizes(variables, heads, tensors.reasons))
    _take_positions(taken)
    matrices = [tensors.take(name, *shape) for name, shape in zip(names, shapes, strict=True)]
    matrices.append(tensors.take(OUTPUT.weight, target_size, d_model))
    bias = None
    if tensors.has(OUTPUT.bias):
        bias = tensors.take(OUTPUT.bias, target_size)
        taken.options["output_bias"] = True
    taken.put_pieces(vocabularies, matrices, bias)
    head_width = _head_width(variables, tensors)
    if head_width and any(head_width * number != d_model for number in heads.values()):
        taken.options |= {"d_k": head_width, "d_v": head_width}
    for side, number in heads.items():
        taken.take_stack(side, NAMES[side])
        _scale_queries(taken, variables, side, head_width * number or d_model, number)
    return taken.model(vocabularies, models)


def _head_width(variables: Variables, tensors: TensorsTaken) -> int:
    """Return the width of a head if it is stored; 0 if it is d_model / num_heads."""
    names = [name for name in variables.by_name if name.endswith("attention/head_dim")]
    width = max({int(tensors.take_number(name, 0)) for name in names}, default=0)
    if not 0 <= width <= WIDEST_HEAD:
        tensors.reasons.append(f"it has heads of the width {width:,}")
        return 0
    return width


def _sizes(variables: Variables, heads: Mapping[str, int], reasons: list[str]) -> dict[str, int]:
    of_sides = []
    for side, num_heads in heads.items():
        pattern = re.compile(rf"{side}/layer_(\d+)/")
        layers = len({m[1] for name in variables.by_name if (m := pattern.match(name))})
        if not layers or not 1 <= num_heads <= MOST_HEADS:
            reasons.append(f"its {side} has {layers} layers of {num_heads} heads")
        d_ff = (*variables.shape(f"{side}/layer_0/ffn/linear_0/weight"), 0)[0]
        of_sides.append({"num_layers": layers, "num_heads": num_heads, "d_ff": d_ff})
    return merged(*of_sides)


def _scale_queries(
    taken: WeightsTaken, variables: Variables, side: str, width: int, num_heads: int
) -> None:
    """Multiply the queries where the model has another scale than the width of a head gives."""
    scale = 1.0 / math.sqrt(max(1, width // max(1, num_heads)))
    for name in variables.by_name:
        match = QUERIES_SCALE.fullmatch(name)
        if match is None or match[1] != side:
            continue
        factor = taken.tensors.take_number(name, scale) / scale
        if abs(factor - 1.0) < ROUNDING or taken.tensors.is_wrong:
            continue
        for part in ("weight", "bias"):
            ours = f"{side}_layers.{match[2]}.{QUERIES[match[3]]}.{part}"
            if ours in taken.weights:
                scaled = taken.weights[ours].copy()  # which a file may hold twice
                scaled[:width] *= factor
                taken.weights[ours] = scaled


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


def _take_positions(taken: WeightsTaken) -> None:
    """Take the tables of positions, or find out which sinusoids the model computes.

    Without tables, CTranslate2 computes sines, then cosines, with Tensor2Tensor's frequencies from
    position 1. Tables that are no sinusoids become learned positions.
    """
    names = [f"{side}/position_encodings/encodings" for side in SIDES]
    halves = order_from_sines_first(taken.d_model) if taken.d_model % 2 == 0 else None
    if halves is not None and not any(map(taken.tensors.has, names)):
        taken.options |= {"sinusoid_frequencies": "tensor2tensor", "first_position": 1}
        taken.order = halves
        return
    tables = taken.take_tables(names)
    if taken.tensors.is_wrong:
        return
    for order in (None, halves) if halves is not None else ():
        ordered = [table if order is None else table[:, order] for table in tables]
        found = known_sinusoids(ordered, TOLERANCE)
        if found is not None:
            taken.options |= found
            taken.order = order
            return
    taken.put_learned_positions(tables)
