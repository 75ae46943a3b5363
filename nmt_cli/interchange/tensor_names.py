"""The names that a program gives to the tensors of its Transformers, for import and export."""

from collections.abc import Callable
from typing import NamedTuple


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


# How many of queries, keys and values each of the inputs of an attention holds.
PARTS_OF_INPUTS = {1: (3,), 2: (1, 2), 3: (1, 1, 1)}
