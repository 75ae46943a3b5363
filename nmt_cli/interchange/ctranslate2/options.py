"""The options of our architecture that a model of CTranslate2 has."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt_cli.interchange.files import SIDES, Array
from nmt_cli.interchange.known_sinusoids import known_sinusoids, order_from_sines_first
from nmt_cli.interchange.tensors_taken import TensorsTaken

ACTIVATIONS = {0: "relu", 1: "gelu_tanh", 2: "swish", 3: "gelu"}
DEFAULT_EPSILON = 1e-5
UNIMPORTANT = ("alignment_layer", "alignment_heads", "embeddings_merge")  # of one embedding
OFF = (
    *("encoder/multi_query_attention", "decoder/alibi", "decoder/alibi_use_positive_positions"),
    "decoder/scale_alibi",
)
TOLERANCE = 1e-5  # of sinusoids in fp32


class Positions(NamedTuple):
    """How a model marks positions."""

    options: dict[str, Any]
    order: NDArray[np.intp] | None = None  # our dimensions among theirs, if they differ
    tables: tuple[Array, ...] = ()  # learned vectors of encoder and decoder


def common_options(
    tensors: TensorsTaken, config: Mapping[str, Any], d_model: int, *, has_sides: bool
) -> dict[str, Any]:
    """Return the options that encoder and decoder have to share.

    In older models, which store them once for both sides, not ``has_sides``.
    """
    if config.get("add_source_bos"):
        tensors.reasons.append("it adds a mark at the start of the source")
    epsilon = config.get("layer_norm_epsilon")
    options: dict[str, Any] = {
        "d_model": d_model,
        "dropout": 0.0,
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


def take_positions(tensors: TensorsTaken, d_model: int) -> Positions:
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
    learned = {"positions": "learned", "max_positions": len(tables[0])}
    return Positions(learned, None, tuple(tables))
