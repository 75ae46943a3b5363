"""The variables of CTranslate2's Transformer, for import and export.

Their names are those in ``model.bin``. Matrices are [out, in] as ours are. Q, K and V of
self-attention are one matrix, as are K and V of the attention to the encoder's output.
"""

import numpy as np

from nmt_cli.interchange.exported_model import ExportedModel, TensorsMade
from nmt_cli.interchange.files import SIDES, Weights
from nmt_cli.interchange.tensor_names import AttentionNames, LayerNames, Pair, StackNames
from nmt_cli.recipe.model_config import StackShape


def _layer(side: str, number: int) -> LayerNames:
    layer = f"{side}/layer_{number}"

    def attention(name: str, inputs: int) -> AttentionNames:
        *linears, output = (_linear(f"{layer}/{name}/linear_{n}") for n in range(inputs + 1))
        return AttentionNames(tuple(linears), output, _norm(f"{layer}/{name}/layer_norm"))

    return LayerNames(
        attention("self_attention", 1),
        attention("attention", 2) if side == "decoder" else None,
        _linear(f"{layer}/ffn/linear_0"),
        _linear(f"{layer}/ffn/linear_1"),
        _norm(f"{layer}/ffn/layer_norm"),
    )


def _linear(name: str) -> Pair:
    return Pair(f"{name}/weight", f"{name}/bias")


def _norm(name: str) -> Pair:
    return Pair(f"{name}/gamma", f"{name}/beta")


OUTPUT = _linear("decoder/projection")
NAMES = StackNames(
    _layer,
    last_norm=lambda side: _norm(f"{side}/layer_norm"),
    embedding_norm=lambda side: _norm(f"{side}/layernorm_embedding"),
)


def head_width(shape: StackShape, d_model: int) -> int | None:
    """Return the width of a head if it is not d_model / num_heads, which is the default.

    CTranslate2's keys are as wide as its values, so the narrower ones get zeros.
    """
    width = max(shape.key_width, shape.value_width)
    return width if width * shape.num_heads != d_model else None


def ctranslate2_variables(model: ExportedModel) -> Weights:
    """Return the variables; equal ones are not merged. Raises UserError if a weight is left."""
    architecture = model.settings.architecture
    made = TensorsMade(model, need_biases=False)
    for side, text_side in SIDES.items():
        shape: StackShape = getattr(architecture, side)
        embeddings = "encoder/embeddings_0" if side == "encoder" else "decoder/embeddings"
        made.found[f"{embeddings}/weight"] = made.take(f"{text_side}_embedding.weight")
        positions = made.take_positions(text_side)
        made.found[f"{side}/position_encodings/encodings"] = positions
        width = max(shape.key_width, shape.value_width)
        made.put_stack(side, NAMES, width)
        if head_width(shape, architecture.d_model) is None and shape.key_width == width:
            continue
        for number in range(shape.num_layers):
            for name in ("self_attention", "attention")[: 1 if side == "encoder" else 2]:
                scale = np.array(np.float32(shape.key_width**-0.5))
                made.found[f"{side}/layer_{number}/{name}/queries_scale"] = scale
    made.found[OUTPUT.weight] = made.take("output_weight")
    if architecture.output_bias:
        made.found[OUTPUT.bias] = made.take_output_bias()
    made.refuse_left()
    return made.found
