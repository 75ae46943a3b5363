"""The names of the tensors of other programs, and the order of their dimensions."""

from collections.abc import Collection, Iterator, Mapping, Sequence
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


class StackNames(NamedTuple):
    """The names of all tensors of the encoder or the decoder, beside those of the vocabulary."""

    layer: str  # how the names of a layer begin; {} is its number
    parts: Mapping[str, Sequence[str]]  # theirs, by ours; {} is for ``linear`` or ``norm``
    last_norm: Pair  # behind the layers, with pre-norm
    embedding_norm: Pair | None = None
    linear: Pair = Pair("weight", "bias")
    norm: Pair = Pair("weight", "bias")
    first: int = 0  # the number of the first layer

    def of_layer(self, number: int) -> Iterator[tuple[str, list[Pair]]]:
        """Yield our name of each part of a layer, which is counted from 0, and theirs."""
        layer = self.layer.format(number + self.first)
        for ours, theirs in self.parts.items():
            kinds = self.norm if ours.endswith("norm") else self.linear
            yield ours, [Pair(*((layer + each).format(kind) for kind in kinds)) for each in theirs]


# Our layers that read vectors of the model, and how many times the width of all heads, or of the
# inner layer, each has as rows. The other layers write such vectors.
READING = {"queries_keys_values": 3, "queries": 1, "keys_values": 2, "inner": 1}
RECURRENT = ("candidates", "forget_gates")  # they read and write such vectors


def parts_of_layer(
    self_attention: Sequence[str],
    memory_attention: Sequence[str],
    inner: str,
    outer: str,
    norm: str,
) -> dict[str, Sequence[str]]:
    """Return another program's names of the parts of a layer, by ours.

    An attention has those of its projections before and behind it, and that of its norm. A program
    that joins queries, keys and values has one projection before it, and one that joins keys and
    values has two. The encoder has no ``memory_attention``, a recurrent decoder no
    ``self_attention``.
    """
    parts: dict[str, Sequence[str]] = {}
    for name, attention in {"self": self_attention, "memory": memory_attention}.items():
        if attention:
            *inputs, output, own_norm = attention
            ours = f"{name}_attention"
            if name == "self":
                parts[f"{ours}.queries_keys_values"] = inputs
            else:
                parts |= {f"{ours}.queries": inputs[:1], f"{ours}.keys_values": inputs[1:]}
            parts |= {f"{ours}.output": [output], f"{ours}_residual.norm": [own_norm]}
    feed_forward = {".inner": inner, ".outer": outer, "_residual.norm": norm}
    return parts | {f"feed_forward{part}": [name] for part, name in feed_forward.items()}


def dotted(name: str) -> Pair:
    """Return the names that torch gives to the tensors of the module ``name``."""
    return Pair(f"{name}.weight", f"{name}.bias")


def names_of_stack(side: str, prefix: str = "") -> StackNames:
    """Return fairseq's names; Hugging Face has the same ones behind ``prefix``."""

    def attention(name: str) -> list[str]:
        projections = [f"{name}.{each}_proj.{{}}" for each in ("q", "k", "v", "out")]
        return [*projections, f"{name}_layer_norm.{{}}"]

    memory = attention("encoder_attn") if side == "decoder" else []
    return StackNames(
        f"{prefix}{side}.layers.{{}}.",
        parts_of_layer(attention("self_attn"), memory, "fc1.{}", "fc2.{}", "final_layer_norm.{}"),
        dotted(f"{prefix}{side}.layer_norm"),
        dotted(f"{prefix}{side}.layernorm_embedding"),
    )


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
