"""Writes random models in the layout of Marian's .npz files, and computes what they compute."""

import re
import struct
from typing import Any

import numpy as np

from tests.interchange.plain_transformer import (
    Attention,
    Layer,
    Options,
    PlainTransformer,
    Recurrence,
    Side,
)

SOURCE = ["</s>", "<unk>", *(f"s{n}" for n in range(9))]
TARGET = ["</s>", "<unk>", *(f"t{n}" for n in range(11))]
DEFAULTS: dict[str, Any] = {
    "d_model": 12,
    "heads": 3,
    "layers": (2, 2),
    "widths": (10, 10),
    "activation": "swish",
    "norm": "post",
    "embedding_norm": False,
    "tied": "none",  # or decoder, all, src
    "learned": False,
    "output_bias": True,
    "old_output": False,
    "recurrent": False,
}


def random_model(**options):
    """Return the tensors of a model and its settings in YAML."""
    options = {**DEFAULTS, **options}
    d, size = options["d_model"], len(TARGET)
    shapes = {
        "Wemb": (size, d) if options["tied"] in ("all", "src") else None,
        "encoder_Wemb": (len(SOURCE), d) if options["tied"] in ("decoder", "none") else None,
        "decoder_Wemb": (size, d) if options["tied"] in ("decoder", "none") else None,
        "decoder_ff_logit_out_b": (1, size) if options["output_bias"] else None,
        "Wpos": (30, d) if options["learned"] else None,
    }
    if options["tied"] in ("none", "src"):
        old = options["old_output"]
        shapes[f"decoder_ff_logit_out_W{'' if old else 't'}"] = (d, size) if old else (size, d)
    sides = zip(("encoder", "decoder"), options["layers"], options["widths"], strict=True)
    for side, count, width in sides:
        shapes |= shapes_of_side(side, count, width, options)
    random, tensors = np.random.default_rng(7), {}
    for name, shape in shapes.items():
        if shape is not None:
            mean = 1.0 if "_ln_scale" in name else 0.0
            tensors[name] = random.normal(mean, 0.4, shape).astype(np.float32)
    return tensors, settings_of(options)


def shapes_of_side(side, count, width, options):
    d, norms = options["d_model"], []
    shapes: dict[str, tuple[int, ...]] = {}
    suffix = "_pre" if options["norm"] == "pre" else ""
    if options["embedding_norm"]:
        norms.append((f"{side}_emb", "_pre"))
    if suffix:
        norms.append((f"{side}_top", ""))
    for layer in (f"{side}_l{number}" for number in range(1, count + 1)):
        kinds = ["self"] if side == "encoder" else ["self", "context"]
        if side == "decoder" and options["recurrent"]:
            kinds.remove("self")
            shapes |= {f"{layer}_rnn_W": (d, d), f"{layer}_rnn_Wf": (d, d)}
            shapes[f"{layer}_rnn_bf"] = (1, d)
            norms.append((f"{layer}_rnn" if suffix else f"{layer}_rnn_ffn", suffix))
        for kind in kinds:
            for part in "qkvo":
                shapes |= {f"{layer}_{kind}_W{part}": (d, d), f"{layer}_{kind}_b{part}": (1, d)}
            norms.append((f"{layer}_{kind}_Wo", suffix))
        for part, shape in (("1", (d, width)), ("2", (width, d))):
            shapes |= {f"{layer}_ffn_W{part}": shape, f"{layer}_ffn_b{part}": (1, shape[1])}
        norms.append((f"{layer}_ffn_ffn", suffix))
    for name, end in norms:
        shapes |= {f"{name}_ln_{part}{end}": (1, d) for part in ("scale", "bias")}
    return shapes


def settings_of(options):
    depths, widths = options["layers"], options["widths"]
    is_pre = options["norm"] == "pre"
    settings = {
        "type": "transformer",
        "dim-emb": options["d_model"],
        "enc-depth": depths[0],
        "dec-depth": depths[1],
        "transformer-decoder-autoreg": "rnn" if options["recurrent"] else "self-attention",
        "dec-cell": "ssru" if options["recurrent"] else "gru",
        "transformer-heads": options["heads"],
        "transformer-dim-ffn": widths[0],
        "transformer-decoder-dim-ffn": 0 if widths[0] == widths[1] else widths[1],
        "transformer-ffn-activation": options["activation"],
        "transformer-preprocess": "n" if is_pre else '""',
        "transformer-postprocess": "da" if is_pre else "dan",
        "transformer-postprocess-top": "n" if is_pre else '""',
        "transformer-postprocess-emb": "nd" if options["embedding_norm"] else "d",
        "transformer-train-positions": str(options["learned"]).lower(),
        "tied-embeddings": str(options["tied"] == "decoder").lower(),
        "tied-embeddings-all": str(options["tied"] == "all").lower(),
        "tied-embeddings-src": str(options["tied"] == "src").lower(),
        "output-omit-bias": str(not options["output_bias"]).lower(),
        "input-types": "\n  []",
        "version": "v1.12.0 random",
    }
    return "".join(f"{key}: {value}\n" for key, value in settings.items())


def write_npz(path, tensors, settings):
    """Write the file of a model; its settings are bytes that end with zeros."""
    content = np.frombuffer(settings.encode() + bytes(9), np.int8)
    np.savez(path, **{**tensors, "special:model.yml": content})


def write_binary(path, tensors, settings):
    """Write the same with matrices in 8-bit integers, as Bergamot does; return them rounded."""
    items, rounded = {}, {}
    for name, array in tensors.items():
        rounded[name], items[name] = array, (0x404, array.shape, array.tobytes())
        if re.search("_W.?$|Wemb", name):
            scale = np.float32(127 / np.abs(array).max())
            whole = np.rint(array * scale).astype(np.int8)
            rounded[name] = whole / scale
            stored = whole if "Wemb" in name else whole.T
            items[name] = 0x4101, array.shape, stored.tobytes() + scale.tobytes()
            items[f"{name}_QuantMultA"] = 0x404, (1,), scale.tobytes()
    content = settings.encode() + bytes(9)
    items["special:model.yml"] = 0x101, (len(content),), content
    path.write_bytes(binary(items))
    return rounded


def binary(items):
    """Return the bytes of a file with the types, shapes and contents of items by name."""
    padded = {name: data + bytes(-len(data) % 256) for name, (_, _, data) in items.items()}
    numbers = [1, len(items)]
    for name, (kind, shape, _) in items.items():
        numbers += [len(name) + 1, kind, len(shape), len(padded[name])]
    data = struct.pack(f"<{len(numbers)}Q", *numbers)
    data += b"".join(name.encode() + b"\0" for name in items)
    data += b"".join(struct.pack(f"<{len(shape)}i", *shape) for _, shape, _ in items.values())
    padding = -(len(data) + 8) % 256
    return data + struct.pack("<Q", padding) + bytes(padding) + b"".join(padded.values())


def write_vocabulary(path, pieces):
    quoted = (f'"{piece}"' if re.search(r"\W", piece) else piece for piece in pieces)
    path.write_text("".join(f"{piece}: {number}\n" for number, piece in enumerate(quoted)))


def plain(tensors, **options):
    """Return the model as formulas, with the dimensions in Marian's own order."""
    options = {**DEFAULTS, **options}
    suffix = "_pre" if options["norm"] == "pre" else ""

    def linear(name, part):
        return tensors[f"{name}_W{part}"].T, tensors[f"{name}_b{part}"][0]

    def norm(name, suffix=""):
        return tensors[f"{name}_ln_scale{suffix}"][0], tensors[f"{name}_ln_bias{suffix}"][0]

    def attention(name, *, is_causal=False):
        queries, keys, values, result = (linear(name, part) for part in "qkvo")
        return Attention(queries, keys, values, result, norm(f"{name}_Wo", suffix), is_causal)

    def own(layer):
        if "decoder" not in layer or not options["recurrent"]:
            return attention(f"{layer}_self", is_causal="decoder" in layer)
        unit = f"{layer}_rnn"
        candidates = tensors[f"{unit}_W"].T, None
        gates = tensors[f"{unit}_Wf"].T, tensors[f"{unit}_bf"][0]
        return Recurrence(candidates, gates, norm(unit if suffix else f"{unit}_ffn", suffix))

    def side(name, count):
        layers = [
            Layer(
                own(layer),
                attention(f"{layer}_context") if name == "decoder" else None,
                linear(f"{layer}_ffn", 1),
                linear(f"{layer}_ffn", 2),
                norm(f"{layer}_ffn_ffn", suffix),
            )
            for layer in (f"{name}_l{number}" for number in range(1, count + 1))
        ]
        return Side(
            tensors.get("Wemb", tensors.get(f"{name}_Wemb")),
            tensors["Wpos"] if options["learned"] else marian_sinusoids(40, options["d_model"]),
            layers,
            norm(f"{name}_top") if suffix else None,
            norm(f"{name}_emb", "_pre") if options["embedding_norm"] else None,
        )

    encoder, decoder = (
        side(name, count)
        for name, count in zip(("encoder", "decoder"), options["layers"], strict=True)
    )
    output = tensors.get("decoder_ff_logit_out_Wt", decoder.embedding)
    if options["old_output"]:
        output = tensors["decoder_ff_logit_out_W"].T
    bias = tensors.get("decoder_ff_logit_out_b")
    scale = 1.0 if options["learned"] else None
    return PlainTransformer(
        encoder,
        decoder,
        (output, None if bias is None else bias[0]),
        (options["heads"], options["heads"]),
        (None, None),
        options["norm"] == "pre",
        Options(options["activation"], 1e-6, scale, starts_with_zeros=True),
    )


def marian_sinusoids(count, d_model):
    """Return sines, then cosines; the frequencies go from 1 to 1/10000 inclusive."""
    half = d_model // 2
    angles = np.outer(np.arange(count), 10000.0 ** (-np.arange(half) / (half - 1)))
    return np.concatenate((np.sin(angles), np.cos(angles)), axis=1).astype(np.float32)
