"""Writes models in the files of CTranslate2, from the description of its format."""

import json
import struct

import numpy as np

from nmt_cli.model.sinusoids import sinusoids

TYPES = ["float32", "int8", "int16", "int32", "float16"]  # by number
ACTIVATIONS = {"relu": 0, "gelu_tanh": 1, "swish": 2, "gelu": 3}


def binary(variables, *, version=6, spec="TransformerSpec", revision=7, aliases=()):
    def name(text):
        return struct.pack("<H", len(text.encode()) + 1) + text.encode() + b"\0"

    parts = [struct.pack("<I", version), name(spec), struct.pack("<II", revision, len(variables))]
    for key, array in variables.items():
        content = np.asarray(array)
        parts.append(name(key) + struct.pack(f"<B{content.ndim}I", content.ndim, *content.shape))
        if version >= 4:
            parts.append(struct.pack("<BI", TYPES.index(content.dtype.name), content.nbytes))
        else:
            parts.append(struct.pack("<BI", content.itemsize, content.size))
        parts.append(content.tobytes())
    if version >= 3:
        parts.append(struct.pack("<I", len(aliases)))
        parts += [name(alias) + name(key) for alias, key in aliases]
    return b"".join(parts)


def write_folder(folder, model, vocabularies, **config):
    folder.mkdir(exist_ok=True)
    (folder / "model.bin").write_bytes(model)
    marks = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    content = {**marks, "decoder_start_token": "<s>", "add_source_bos": False, **config}
    (folder / "config.json").write_text(json.dumps(content))
    for side, tokens in vocabularies.items():
        (folder / f"{side}_vocabulary.json").write_text(json.dumps(tokens))


def variables_of(model):
    """Return the variables that compute what ``model`` computes; its dimensions stay in order."""
    config = model.config
    parameters = model.named_parameters(remove_duplicate=False)
    ours = {name: each.detach().numpy() for name, each in parameters}
    found = {
        "encoder/embeddings_0/weight": ours["source_embedding.weight"],
        "decoder/embeddings/weight": ours["target_embedding.weight"],
        "decoder/projection/weight": ours["output_weight"],
        "decoder/start_from_zero_embedding": np.int8(config.decoder_start == "zeros"),
        "decoder/alignment_layer": np.int16(-1),
        "encoder/multi_query_attention": np.int8(0),
        "decoder/scale_alibi": np.int8(0),
    }
    if "output_bias" in ours:
        found["decoder/projection/bias"] = ours["output_bias"]
    for side, text_side in (("encoder", "source"), ("decoder", "target")):
        names = {f"{side}/layer_norm": f"{side}_norm"}
        names[f"{side}/layernorm_embedding"] = f"{text_side}_embedding.norm"
        shape = config.encoder_shape if side == "encoder" else config.decoder_shape
        for number in range(shape.num_layers):
            of_layer = _names_of_layer(f"{side}_layers.{number}").items()
            names |= {f"{side}/layer_{number}/{theirs}": name for theirs, name in of_layer}
        found |= _parts(names, ours)
        found[f"{side}/num_heads"] = np.int16(shape.num_heads)
        found[f"{side}/pre_norm"] = np.int8(config.norm == "pre")
        found[f"{side}/activation"] = np.int8(ACTIVATIONS[config.activation])
        found[f"{side}/scale_embeddings"] = np.int8(config.scale_embeddings)
        table = sinusoids(80, 20, config.sinusoid_frequencies, config.first_position)
        table = ours.get(f"{text_side}_embedding.positions.weight", table)
        found[f"{side}/position_encodings/encodings"] = table
    return found


def _names_of_layer(ours):
    """Return our names of linear layers and norms by theirs."""
    names = {
        "self_attention/linear_0": f"{ours}.self_attention.queries_keys_values",
        "self_attention/linear_1": f"{ours}.self_attention.output",
        "self_attention/layer_norm": f"{ours}.self_attention_residual.norm",
        "ffn/linear_0": f"{ours}.feed_forward.inner",
        "ffn/linear_1": f"{ours}.feed_forward.outer",
        "ffn/layer_norm": f"{ours}.feed_forward_residual.norm",
    }
    if ours.startswith("decoder"):
        for place, name in enumerate(("queries", "keys_values", "output")):
            names[f"attention/linear_{place}"] = f"{ours}.memory_attention.{name}"
        names["attention/layer_norm"] = f"{ours}.memory_attention_residual.norm"
    return names


def _parts(names, ours):
    found = {}
    for theirs, name in names.items():
        parts = ("gamma", "beta") if "norm" in theirs else ("weight", "bias")
        for part, our_part in zip(parts, ("weight", "bias"), strict=True):
            if f"{name}.{our_part}" in ours:
                found[f"{theirs}/{part}"] = ours[f"{name}.{our_part}"]
    return found
