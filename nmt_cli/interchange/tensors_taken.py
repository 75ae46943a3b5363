"""Takes tensors by their names in other programs: layer by layer, each of them once."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt_cli.interchange.files import Array
from nmt_cli.messages.figures import counted

NAMED = 5  # tensors in a reason


class TensorsTaken:
    """Gives out tensors by name, and collects the reasons why they do not make a model."""

    def __init__(self, tensors: Mapping[str, Array]) -> None:
        self._tensors, self._taken = tensors, set[str]()
        self.reasons: list[str] = []
        self._missing: list[str] = []
        self._shapes: list[str] = []

    @property
    def is_wrong(self) -> bool:
        """Whether there is a reason already, so that the tensors need not be computed with."""
        return bool(self.reasons or self._missing or self._shapes)

    def has(self, name: str) -> bool:
        """Return whether there is such a tensor."""
        return name in self._tensors

    def length(self, name: str) -> int:
        """Return the first size of a tensor; 0 if there is none of this name."""
        found = self._tensors.get(name)
        return 0 if found is None or not found.ndim else len(found)

    def take(self, name: str, *shape: int) -> Array:
        """Return a tensor of ``shape``; if there is none, one of zeros, and a reason."""
        found = self.take_if_there(name)
        if found is None:
            self._missing.append(name)
        elif found.shape != shape:
            self._shapes.append(f"{name} has the shape {list(found.shape)}, not {list(shape)}")
        elif not np.isfinite(found).all():
            self.reasons.append(f"{name} holds a number that is not finite")
        else:
            return found
        return np.broadcast_to(np.float32(0), shape)

    def take_if_there(self, name: str) -> Array | None:
        """Return a tensor, or None if there is none of this name."""
        self._taken.add(name)
        return self._tensors.get(name)

    def take_same(self, name: str, other: str, expected: Array) -> Array:
        """Return ``expected``, the tensor ``other``; add a reason if ``name`` is another one."""
        found = self.take_if_there(name)
        if found is not None and not np.array_equal(found, expected):
            self.reasons.append(f"{name} is not {other}, as its options say")
        return expected

    def take_number(self, name: str, default: float) -> float:
        """Return a number; ``default`` if there is none of this name."""
        found = self.take_if_there(name)
        if found is None:
            return default
        if found.size != 1 or not np.isfinite(found).all():
            self.reasons.append(f"{name} is not a number")
            return default
        return float(found.flat[0])

    def refuse_wrong(self) -> None:
        """Raise ValueError with all reasons, if there are any.

        Tensors that are missing, and those that nobody took, are among them.
        """
        left = [name for name in self._tensors if name not in self._taken]
        reasons = [*self.reasons, *self._shapes[:NAMED]]
        if len(self._shapes) > NAMED:
            more = counted(len(self._shapes) - NAMED, "more tensor")
            reasons.append(f"{more} of another shape")
        for names, what in ((self._missing, "missing"), (left, "unknown")):
            if names:
                more = ", ..." if len(names) > NAMED else ""
                listed = ", ".join(names[:NAMED])
                reasons.append(f"{counted(len(names), 'tensor')} {what}: {listed}{more}")
        if reasons:
            raise ValueError("; ".join(dict.fromkeys(reasons)))


Linear = dict[str, Array]


class Pair(NamedTuple):
    """The names of the two tensors of a linear layer or of a norm."""

    weight: str
    bias: str


class AttentionNames(NamedTuple):
    """The names of the projections of an attention, and of the norm beside it."""

    queries: Pair
    keys: Pair
    values: Pair
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


def dotted(name: str) -> Pair:
    """Return the names that torch gives to the tensors of the module ``name``."""
    return Pair(f"{name}.weight", f"{name}.bias")


class LayersTaken:
    """Our weights of layers, taken one by one into ``weights``.

    ``order`` are the places of our dimensions among theirs [d_model]; None if they are the same.
    Layers without a bias get zeros if ``may_lack_biases``; ``leave_out_zeros`` drops them again.
    """

    def __init__(
        self,
        tensors: TensorsTaken,
        d_model: int,
        order: NDArray[np.intp] | None = None,
        *,
        may_lack_biases: bool = False,
    ) -> None:
        self._tensors, self._d_model, self._order = tensors, d_model, order
        self._may_lack_biases = may_lack_biases
        self.weights: dict[str, Array] = {}

    def take_stack(
        self,
        side: str,
        options: Mapping[str, Any],
        names_of: Callable[[str, int], LayerNames],
        attention_width: int | None = None,
    ) -> None:
        """Take the layers of the encoder or the decoder, as many as ``options`` have.

        ``names_of`` returns the names of a side's layer. ``attention_width`` is the width of all
        heads together, by default that of the model.
        """
        prefix = "decoder_" if side == "decoder" else ""
        count, d_ff = (
            options.get(f"{prefix}{key}", options[key]) for key in ("num_layers", "d_ff")
        )
        width = self._d_model if attention_width is None else attention_width
        for number in range(count):
            names = names_of(side, number)
            if not self._tensors.has(names.inner.weight):
                self._tensors.reasons.append(
                    f"it has {number:,} layers of the {side}, not {count:,}"
                )
                return
            self._take_layer(names, f"{side}_layers.{number}", d_ff, width)

    def _take_layer(self, names: LayerNames, ours: str, d_ff: int, width: int) -> None:
        self._take_attention(names.self_attention, f"{ours}.self_attention", width)
        if names.memory_attention is not None:
            self._take_attention(names.memory_attention, f"{ours}.memory_attention", width)
        self._put(f"{ours}.feed_forward.inner", self._take_reading(names.inner, d_ff))
        self._put(f"{ours}.feed_forward.outer", self._take_writing(names.outer, d_ff))
        self.take_norm(names.feed_forward_norm, f"{ours}.feed_forward_residual.norm")
        for name in names.unused:
            self._tensors.take_if_there(name)

    def _take_attention(self, names: AttentionNames, ours: str, width: int) -> None:
        queries, keys, values = (
            self._take_reading(pair, width) for pair in (names.queries, names.keys, names.values)
        )
        if ours.endswith("memory_attention"):
            self._put(f"{ours}.queries", queries)
            self._put(f"{ours}.keys_values", self._joined(keys, values))
        else:
            self._put(f"{ours}.queries_keys_values", self._joined(queries, keys, values))
        self._put(f"{ours}.output", self._take_writing(names.output, width))
        self.take_norm(names.norm, f"{ours}_residual.norm")

    def _take_reading(self, names: Pair, width: int) -> Linear:
        """Return a layer from vectors of the model to vectors of ``width`` numbers."""
        weight = self._tensors.take(names.weight, width, self._d_model)
        return {"weight": self.columns(weight), "bias": self._take_bias(names.bias, width)}

    def _take_writing(self, names: Pair, width: int) -> Linear:
        """Return a layer from vectors of ``width`` numbers to vectors of the model."""
        weight = self._tensors.take(names.weight, self._d_model, width)
        bias = self._take_bias(names.bias, self._d_model)
        return {"weight": self._rows(weight), "bias": self._rows(bias)}

    def _take_bias(self, name: str, width: int) -> Array:
        if self._may_lack_biases and not self._tensors.has(name):
            return np.zeros(0 if self._tensors.is_wrong else width, np.float32)
        return self._tensors.take(name, width)

    def take_norm(self, names: Pair, ours: str) -> None:
        """Take a norm, which is called ``ours`` here."""
        norm = {
            "weight": self._tensors.take(names.weight, self._d_model),
            "bias": self._tensors.take(names.bias, self._d_model),
        }
        self._put(ours, {part: self._rows(array) for part, array in norm.items()})

    def _put(self, ours: str, parts: Linear) -> None:
        self.weights.update({f"{ours}.{part}": array for part, array in parts.items()})

    # What stands for a missing tensor may be as large as the configuration states, so that nothing
    # is computed any more once one is missing.
    def _joined(self, *linears: Linear) -> Linear:
        if self._tensors.is_wrong:
            return linears[0]
        return {part: np.concatenate([each[part] for each in linears]) for part in linears[0]}

    def columns(self, array: Array) -> Array:
        """Return ``array`` [any, d_model] with its columns in our order."""
        return array if self._is_same else array[:, self._order]

    def _rows(self, array: Array) -> Array:
        return array if self._is_same else array[self._order]

    @property
    def _is_same(self) -> bool:
        return self._order is None or self._tensors.is_wrong

    def leave_out_zeros(self) -> dict[str, Any]:
        """Leave out biases that are all zero; return the options of those that are left."""
        options = {}
        groups = {
            "output_bias": ["output_bias"],
            "attention_biases": [n for n in self.weights if "attention" in n and "norm" not in n],
            "feed_forward_biases": [n for n in self.weights if "feed_forward." in n],
        }
        for option, names in groups.items():
            biases = [name for name in names if name in self.weights and name.endswith("bias")]
            options[option] = any(self.weights[name].any() for name in biases)
            if not options[option]:
                for name in biases:
                    del self.weights[name]
        return options
