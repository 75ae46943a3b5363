"""The names of the tensors in checkpoints of fairseq, new and old."""

import re
from collections.abc import Mapping

import numpy as np

from nmt_cli.interchange.files import Array
from nmt_cli.interchange.tensor_names import AttentionNames, LayerNames, dotted

NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}
OLD_NORM = re.compile(r"((encoder|decoder)\.layers\.\d+)\.layer_norms\.([0-2])\.(weight|bias)")
JOINED = re.compile(r"(.*_attn)\.in_proj_(weight|bias)")  # queries, keys, values
OLD_OUTPUT, OUTPUT = "decoder.embed_out", "decoder.output_projection.weight"


def names_of_layer(side: str, number: int, prefix: str = "") -> LayerNames:
    """Return the names of the tensors of a layer; Hugging Face's have ``prefix`` before them."""
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


def with_new_names(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Return the tensors with new names; an old one stays if there is a new one beside it."""
    found: dict[str, Array] = {}
    for name, array in tensors.items():
        renamed = _renamed(name, array)
        found |= {name: array} if tensors.keys() & renamed.keys() else renamed
    return found


def _renamed(name: str, array: Array) -> dict[str, Array]:
    """Return a tensor with its new name, or its three parts."""
    norm, joined = OLD_NORM.fullmatch(name), JOINED.fullmatch(name)
    if name == OLD_OUTPUT:
        return {OUTPUT: array}
    if norm is not None and int(norm[3]) < len(NORMS[norm[2]]):
        return {f"{norm[1]}.{NORMS[norm[2]][int(norm[3])]}.{norm[4]}": array}
    if joined is not None and array.ndim and len(array) % len("qkv") == 0:
        parts = np.split(array, len("qkv"))
        return {
            f"{joined[1]}.{q}_proj.{joined[2]}": part for q, part in zip("qkv", parts, strict=True)
        }
    return {name: array}
