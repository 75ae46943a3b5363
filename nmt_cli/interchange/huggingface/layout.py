"""The tensors of Hugging Face's MarianMTModel and PegasusForConditionalGeneration.

Both have the sines of all frequencies before the cosines, where the paper has them in turn, so
every axis of d_model is permuted. Their attention has biases; ours may have none, so they are zero.
A decoder that starts with zeros reads one more piece, ``<pad>``, whose vector is zero and whose
logit is so low that it never has a probability.
Their heads are d_model / num_heads wide; narrower ones get zeros, and queries a factor, because the
scale of the scores depends on the width.
"""

from collections.abc import Mapping

import numpy as np

from nmt_cli.interchange.exported_model import ExportedModel, WeightsToExport, widened_heads
from nmt_cli.interchange.files import SIDES, Array, Weights
from nmt_cli.interchange.known_sinusoids import sines_first
from nmt_cli.recipe.model_config import StackShape

NEVER = -1e4  # the logit of <pad>; exp of it is 0
# The axis of d_model in the matrix of each layer.
MODEL_AXIS = {"q_proj": 1, "k_proj": 1, "v_proj": 1, "fc1": 1, "out_proj": 0, "fc2": 0}


def is_marian(model: ExportedModel) -> bool:
    """Return whether the class is MarianMTModel, which has post-norm; Pegasus has pre-norm."""
    return model.settings.architecture.norm == "post"


def has_pad(model: ExportedModel) -> bool:
    """Return whether the vocabulary has ``<pad>`` behind the pieces of the model."""
    return model.settings.architecture.decoder_start == "zeros"


def huggingface_tensors(model: ExportedModel) -> Weights:
    """Return the tensors of ``model.safetensors``. Raises UserError if a weight is left."""
    architecture, found = model.settings.architecture, Weights()
    weights = WeightsToExport(model)
    tensors = _Tensors(found, model, architecture.encoder)
    tensors.embeddings(weights, architecture.tied_embeddings)
    bias = weights.take_output_bias()
    if has_pad(model):
        bias = np.append(bias, np.float32(NEVER))
    found["final_logits_bias"] = bias[None]
    for side, text_side in SIDES.items():
        tensors = _Tensors(found, model, getattr(architecture, side))
        positions = weights.take_positions(text_side)
        if not is_marian(model):  # Marian computes them, and does not save them again
            tensors.by_rows(f"model.{side}.embed_positions.weight", positions)
        for number in range(tensors.shape.num_layers):
            _add_layer(tensors, weights, side, number)
        if not is_marian(model):
            tensors.norm(f"model.{side}.layer_norm", weights.take_layer(f"{side}_norm"))
    weights.refuse_left()
    return found


class _Tensors:
    """The tensors that are made so far, and the shape of the side that is being made."""

    def __init__(self, found: Weights, model: ExportedModel, shape: StackShape) -> None:
        self.found, self.shape = found, shape
        d_model = model.settings.architecture.d_model
        self._is_marian = is_marian(model)
        self._has_pad = has_pad(model)
        self._order = sines_first(d_model)
        self._num_heads = shape.num_heads
        self._width = d_model // shape.num_heads
        self._queries_factor = np.float32((self._width / shape.key_width) ** 0.5)

    def by_rows(self, name: str, rows: Array) -> None:
        """Add a matrix whose rows are vectors of the model."""
        self.found[name] = np.ascontiguousarray(rows[:, self._order])

    def embeddings(self, weights: WeightsToExport, tied: str) -> None:
        source, target = (weights.take(f"{side}_embedding.weight") for side in SIDES.values())
        output = weights.take("output_weight")
        if self._has_pad:
            source, target, output = (
                np.concatenate((matrix, np.zeros_like(matrix[:1])))
                for matrix in (source, target, output)
            )
        if tied == "all" or not self._is_marian:
            self.by_rows("model.shared.weight", source)
        if tied != "all":
            self.by_rows("model.encoder.embed_tokens.weight", source)
            self.by_rows("model.decoder.embed_tokens.weight", target)
            if tied == "none" or not self._is_marian:
                self.by_rows("lm_head.weight", output)

    def norm(self, name: str, layer: Mapping[str, Array]) -> None:
        self.found |= {f"{name}.{part}": array[self._order] for part, array in layer.items()}

    def linear(self, name: str, layer: Mapping[str, Array]) -> None:
        """Add a layer whose input or output are vectors of the model."""
        weight = layer["weight"]
        bias = layer.get("bias", np.zeros(len(weight), np.float32))
        if MODEL_AXIS[name.rpartition(".")[2]] == 0:
            weight, bias = weight[self._order], bias[self._order]
        else:
            weight = weight[:, self._order]
        self.found[f"{name}.weight"] = np.ascontiguousarray(weight)
        self.found[f"{name}.bias"] = bias

    def attention(self, name: str, inputs: tuple[Weights, ...], output: Weights) -> None:
        queries, keys, values = (
            widened_heads(layer, self._num_heads, self._width) for layer in inputs
        )
        queries = {part: array * self._queries_factor for part, array in queries.items()}
        for letter, layer in zip("qkv", (queries, keys, values), strict=True):
            self.linear(f"{name}.{letter}_proj", layer)
        read = widened_heads(output, self._num_heads, self._width, axis=1)
        self.linear(f"{name}.out_proj", read)


def _add_layer(tensors: _Tensors, weights: WeightsToExport, side: str, number: int) -> None:
    ours, theirs = f"{side}_layers.{number}", f"model.{side}.layers.{number}"
    kinds = {"self_attention": "self_attn"}
    if side == "decoder":
        kinds["memory_attention"] = "encoder_attn"
    for kind, their_name in kinds.items():
        inputs = weights.take_attention(f"{ours}.{kind}", tensors.shape)
        output = weights.take_layer(f"{ours}.{kind}.output")
        tensors.attention(f"{theirs}.{their_name}", inputs, output)
        norm = weights.take_layer(f"{ours}.{kind}_residual.norm")
        tensors.norm(f"{theirs}.{their_name}_layer_norm", norm)
    for their_name, part in (("fc1", "inner"), ("fc2", "outer")):
        tensors.linear(f"{theirs}.{their_name}", weights.take_layer(f"{ours}.feed_forward.{part}"))
    norm = weights.take_layer(f"{ours}.feed_forward_residual.norm")
    tensors.norm(f"{theirs}.final_layer_norm", norm)
