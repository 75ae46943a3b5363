"""The weights of one of our models for the other engines, read without nmt_cli.

Both are exact for the models that are measured: post-norm, sinusoidal positions, all embeddings
tied. Positions are computed here, because CTranslate2's own have other frequencies.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from tests.benchmarks.decoding.sample import read_pieces

LONGEST = 1_024  # positions
UNKNOWN, BEGIN, END = "<unk>", "<s>", "</s>"

Weights = dict[str, NDArray[np.float32]]


class ExportedModel:
    """A model directory: its sizes, its pieces and its weights."""

    def __init__(self, folder: Path) -> None:
        self.sizes: dict[str, Any] = json.loads((folder / "config.json").read_text())[
            "architecture"
        ]
        self.pieces: list[str] = read_pieces(folder.parent)
        self.weights: Weights = load_file(folder / "model.safetensors")
        kept = {"positions": "sinusoidal", "norm": "post", "tied_embeddings": "all"}
        assert kept.items() <= self.sizes.items(), "only the paper's architecture is exported"

    def positions(self) -> NDArray[np.float32]:
        """Return the sinusoids [LONGEST, d_model] of section 3.5, sines and cosines in turn."""
        d_model = self.sizes["d_model"]
        rates = 10_000.0 ** (-np.arange(0, d_model, 2) / d_model)
        angles = np.arange(LONGEST)[:, None] * rates
        table = np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(LONGEST, d_model)
        return table.astype(np.float32)


def write_ctranslate2(model: ExportedModel, folder: Path) -> None:
    """Write CTranslate2's model; quantization is chosen when it is loaded."""
    import ctranslate2  # type: ignore[import-not-found, unused-ignore]

    sizes, weights = model.sizes, model.weights
    layers = (sizes["num_layers"],) * 2
    spec = ctranslate2.specs.TransformerSpec.from_config(layers, sizes["num_heads"], pre_norm=False)
    for name in ("encoder", "decoder"):
        side = getattr(spec, name)
        embeddings = side.embeddings[0] if name == "encoder" else side.embeddings
        embeddings.weight = weights["output_weight"]
        side.scale_embeddings = True
        side.position_encodings.encodings = model.positions()
        for number, layer in enumerate(side.layer):
            own = _Part(weights, f"{name}_layers.{number}.")
            own.linear(layer.self_attention.linear[0], "self_attention.queries_keys_values")
            own.linear(layer.self_attention.linear[1], "self_attention.output")
            own.norm(layer.self_attention.layer_norm, "self_attention_residual.norm")
            if name == "decoder":
                for place, part in enumerate(("queries", "keys_values", "output")):
                    own.linear(layer.attention.linear[place], f"memory_attention.{part}")
                own.norm(layer.attention.layer_norm, "memory_attention_residual.norm")
            own.linear(layer.ffn.linear_0, "feed_forward.inner")
            own.linear(layer.ffn.linear_1, "feed_forward.outer")
            own.norm(layer.ffn.layer_norm, "feed_forward_residual.norm")
    spec.decoder.projection.weight = weights["output_weight"]
    for register in (spec.register_source_vocabulary, spec.register_target_vocabulary):
        register(model.pieces)
    spec.config.add_source_eos = True
    spec.validate()
    spec.optimize()
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))


class _Part:
    """The weights whose names begin with ``prefix``, as CTranslate2's specifications take them."""

    def __init__(self, weights: Weights, prefix: str) -> None:
        self._weights, self._prefix = weights, prefix

    def linear(self, linear: Any, name: str) -> None:
        linear.weight = self._weights[f"{self._prefix}{name}.weight"]
        bias = self._weights.get(f"{self._prefix}{name}.bias")
        if bias is not None:
            linear.bias = bias

    def norm(self, norm: Any, name: str) -> None:
        norm.gamma = self._weights[f"{self._prefix}{name}.weight"]
        norm.beta = self._weights[f"{self._prefix}{name}.bias"]


def marian_state(model: ExportedModel) -> Weights:
    """Return the weights of Hugging Face's MarianMTModel.

    Marian has the sines of all frequencies before the cosines, so every axis of d_model is
    permuted. Its attention has biases; ours has none, so they are zero.
    """
    sizes, weights = model.sizes, model.weights
    width = sizes["d_model"]
    order = np.concatenate([np.arange(0, width, 2), np.arange(1, width, 2)])
    zeros = np.zeros(width, np.float32)
    state: Weights = {
        "model.shared.weight": weights["output_weight"][:, order],
        "final_logits_bias": np.zeros((1, len(model.pieces)), np.float32),
    }
    for side in ("encoder", "decoder"):
        for number in range(sizes["num_layers"]):
            ours, theirs = f"{side}_layers.{number}.", f"model.{side}.layers.{number}."
            parts = {"self_attn": "self_attention", "encoder_attn": "memory_attention"}
            for their_name, our_name in parts.items():
                if side == "encoder" and their_name == "encoder_attn":
                    continue
                queries, keys, values = _three(weights, f"{ours}{our_name}")
                for letter, part in zip("qkv", (queries, keys, values), strict=True):
                    state[f"{theirs}{their_name}.{letter}_proj.weight"] = part[:, order]
                    state[f"{theirs}{their_name}.{letter}_proj.bias"] = zeros
                output = weights[f"{ours}{our_name}.output.weight"]
                state[f"{theirs}{their_name}.out_proj.weight"] = output[order]
                state[f"{theirs}{their_name}.out_proj.bias"] = zeros
            inner, outer = f"{ours}feed_forward.inner.", f"{ours}feed_forward.outer."
            state[f"{theirs}fc1.weight"] = weights[f"{inner}weight"][:, order]
            state[f"{theirs}fc1.bias"] = weights[f"{inner}bias"]
            state[f"{theirs}fc2.weight"] = weights[f"{outer}weight"][order]
            state[f"{theirs}fc2.bias"] = weights[f"{outer}bias"][order]
            norms = {
                "self_attn_layer_norm": "self_attention_residual",
                "encoder_attn_layer_norm": "memory_attention_residual",
                "final_layer_norm": "feed_forward_residual",
            }
            for their_name, our_name in norms.items():
                for kind in ("weight", "bias"):
                    vector = weights.get(f"{ours}{our_name}.norm.{kind}")
                    if vector is not None:
                        state[f"{theirs}{their_name}.{kind}"] = vector[order]
    return state


def _three(weights: Weights, name: str) -> list[NDArray[np.float32]]:
    """Return the projections of queries, keys and values of one attention."""
    together = weights.get(f"{name}.queries_keys_values.weight")
    if together is None:
        parts = (weights[f"{name}.queries.weight"], weights[f"{name}.keys_values.weight"])
        together = np.concatenate(parts)
    return np.split(together, 3)
