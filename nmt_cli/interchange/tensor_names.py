"""The names of the tensors of other programs, and the order of their dimensions."""

from collections.abc import Callable, Collection
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt_cli.interchange.files import Array
from nmt_cli.model.sinusoids import sinusoids


class Pair(NamedTuple):
    """The names of the two tensors of a linear layer or of a norm."""

    weight: str
    bias: str


class AttentionNames(NamedTuple):
    """The names of the projections of an attention, and of the norm beside it.

    ``inputs`` are those of queries, keys and values. A program that joins all three has one pair,
    and one that joins keys and values has two.
    """

    inputs: tuple[Pair, ...]
    output: Pair
    norm: Pair


class LayerNames(NamedTuple):
    """The names of all tensors of a layer; layers of the encoder have no memory."""

    self_attention: AttentionNames
    memory_attention: AttentionNames | None
    inner: Pair  # of the feed-forward sub-layer
    outer: Pair
    feed_forward_norm: Pair
    unused: tuple[str, ...] = ()  # tensors that nothing is computed with


class StackNames(NamedTuple):
    """The names of all tensors of the encoder and the decoder, beside those of the vocabulary."""

    layer: Callable[[str, int], LayerNames]  # of a side and a number
    last_norm: Callable[[str], Pair]  # behind the layers of a side, with pre-norm
    embedding_norm: Callable[[str], Pair] | None = None


def dotted(name: str) -> Pair:
    """Return the names that torch gives to the tensors of the module ``name``."""
    return Pair(f"{name}.weight", f"{name}.bias")


def names_of_layer(side: str, number: int, prefix: str = "") -> LayerNames:
    """Return fairseq's names for a layer; Hugging Face has the same ones behind ``prefix``."""
    layer = f"{prefix}{side}.layers.{number}"

    def attention(name: str) -> AttentionNames:
        inputs = tuple(dotted(f"{layer}.{name}.{part}_proj") for part in "qkv")
        output, norm = dotted(f"{layer}.{name}.out_proj"), dotted(f"{layer}.{name}_layer_norm")
        return AttentionNames(inputs, output, norm)

    return LayerNames(
        attention("self_attn"),
        attention("encoder_attn") if side == "decoder" else None,
        dotted(f"{layer}.fc1"),
        dotted(f"{layer}.fc2"),
        dotted(f"{layer}.final_layer_norm"),
    )


# How many of queries, keys and values each of the inputs of an attention holds.
PARTS_OF_INPUTS = {1: (3,), 2: (1, 2), 3: (1, 1, 1)}

FREQUENCIES = ("paper", "tensor2tensor")
FIRST_POSITIONS = range(4)


def sines_first(d_model: int) -> NDArray[np.intp]:
    """Return the places of the even dimensions, then those of the odd ones."""
    return np.concatenate([np.arange(0, d_model, 2), np.arange(1, d_model, 2)])


def order_from_sines_first(d_model: int) -> NDArray[np.intp]:
    """Return the places of our dimensions in vectors with the sines first."""
    return np.argsort(sines_first(d_model))


def known_sinusoids(tables: Collection[Array], tolerance: float) -> dict[str, Any] | None:
    """Return the options of the sinusoids that all ``tables`` [positions, D] hold.

    Sines and cosines are in turn, as ours. None if a table holds anything else.
    """
    for frequencies, first in product(FREQUENCIES, FIRST_POSITIONS):
        if all(_are_sinusoids(table, frequencies, first, tolerance) for table in tables):
            return {"sinusoid_frequencies": frequencies, "first_position": first}
    return None


def _are_sinusoids(table: Array, frequencies: str, first_position: int, tolerance: float) -> bool:
    if table.shape[1] % 2:
        return False
    ours = sinusoids(len(table), table.shape[1], frequencies, first_position)
    return bool(np.abs(table - ours).max(initial=0.0) < tolerance)
