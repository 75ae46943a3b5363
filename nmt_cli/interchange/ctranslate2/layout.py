"""The variables of CTranslate2's Transformer, made of our weights.

Their names are those in ``model.bin``. Matrices are [out, in] as ours are. Q, K and V of
self-attention are one matrix, as are K and V of the attention to the encoder's output.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from nmt_cli.interchange.exported_model import ExportedModel, WeightsToExport, widened_heads
from nmt_cli.interchange.files import SIDES, Array, Weights
from nmt_cli.recipe.model_config import StackShape

LINEAR_PARTS = {"weight": "weight", "bias": "bias"}
NORM_PARTS = {"weight": "gamma", "bias": "beta"}


def head_width(shape: StackShape, d_model: int) -> int | None:
    """Return the width of a head if it is not d_model / num_heads, which is the default.

    CTranslate2's keys are as wide as its values, so the narrower ones get zeros.
    """
    width = max(shape.key_width, shape.value_width)
    return width if width * shape.num_heads != d_model else None


def ctranslate2_variables(model: ExportedModel) -> Weights:
    """Return the variables; equal ones are not merged. Raises UserError if a weight is left."""
    architecture, found = model.settings.architecture, Weights()
    weights = WeightsToExport(model)
    for side, text_side in SIDES.items():
        shape: StackShape = getattr(architecture, side)
        variables = _Variables(found, shape, architecture.d_model)
        embeddings = "encoder/embeddings_0" if side == "encoder" else "decoder/embeddings"
        variables.found[f"{embeddings}/weight"] = weights.take(f"{text_side}_embedding.weight")
        positions = weights.take_positions(text_side)
        variables.found[f"{side}/position_encodings/encodings"] = positions
        norm = weights.take_layer(f"{text_side}_embedding.norm")
        variables.norm(f"{side}/layernorm_embedding", norm)
        for number in range(shape.num_layers):
            _add_layer(variables, weights, side, number)
        variables.norm(f"{side}/layer_norm", weights.take_layer(f"{side}_norm"))
    found["decoder/projection/weight"] = weights.take("output_weight")
    if architecture.output_bias:
        found["decoder/projection/bias"] = weights.take_output_bias()
    weights.refuse_left()
    return found


class _Variables:
    """The variables that are made so far, and the shape of the side that is being made."""

    def __init__(self, found: Weights, shape: StackShape, d_model: int) -> None:
        self.found, self.shape = found, shape
        self._num_heads = shape.num_heads
        self._width = max(shape.key_width, shape.value_width)
        self._queries_scale = np.float32(shape.key_width**-0.5)
        self._has_own_scale = (
            head_width(shape, d_model) is not None or shape.key_width != self._width
        )

    def linear(self, name: str, layer: Mapping[str, Array]) -> None:
        self._add(name, layer, LINEAR_PARTS)

    def norm(self, name: str, layer: Mapping[str, Array]) -> None:
        self._add(name, layer, NORM_PARTS)

    def attention(
        self, name: str, inputs: Sequence[Sequence[Weights]], output: Mapping[str, Array]
    ) -> None:
        """Add an attention; each of ``inputs`` holds the layers that become one matrix."""
        for number, layers in enumerate(inputs):
            wide = [widened_heads(layer, self._num_heads, self._width) for layer in layers]
            together = {part: np.concatenate([layer[part] for layer in wide]) for part in wide[0]}
            self.linear(f"{name}/linear_{number}", together)
        read = widened_heads(output, self._num_heads, self._width, axis=1)
        self.linear(f"{name}/linear_{len(inputs)}", read)
        if self._has_own_scale:
            self.found[f"{name}/queries_scale"] = np.array(self._queries_scale)

    def _add(self, name: str, layer: Mapping[str, Array], parts: Mapping[str, str]) -> None:
        self.found |= {f"{name}/{parts[part]}": array for part, array in layer.items()}


def _add_layer(variables: _Variables, weights: WeightsToExport, side: str, number: int) -> None:
    ours, theirs = f"{side}_layers.{number}", f"{side}/layer_{number}"
    kinds = {"self_attention": "self_attention"}
    if side == "decoder":
        kinds["memory_attention"] = "attention"
    for kind, their_name in kinds.items():
        queries, keys, values = weights.take_attention(f"{ours}.{kind}", variables.shape)
        inputs: Sequence[Sequence[Weights]] = [[queries, keys, values]]
        if kind == "memory_attention":
            inputs = [[queries], [keys, values]]
        output = weights.take_layer(f"{ours}.{kind}.output")
        variables.attention(f"{theirs}/{their_name}", inputs, output)
        norm = weights.take_layer(f"{ours}.{kind}_residual.norm")
        variables.norm(f"{theirs}/{their_name}/layer_norm", norm)
    for place, part in enumerate(("inner", "outer")):
        linear = weights.take_layer(f"{ours}.feed_forward.{part}")
        variables.linear(f"{theirs}/ffn/linear_{place}", linear)
    norm = weights.take_layer(f"{ours}.feed_forward_residual.norm")
    variables.norm(f"{theirs}/ffn/layer_norm", norm)
