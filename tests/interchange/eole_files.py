"""Writes models in the files of eole, and computes with their tensors by the plain formula."""

import json
from typing import Any

import numpy as np
import safetensors.numpy

from tests.interchange.plain_transformer import (
    Attention,
    Layer,
    Options,
    PlainTransformer,
    Side,
)

SPECIALS = ["<blank>", "<s>", "<unk>", "</s>"]
WORDS = {"src": ["a", "b", "c", "d", "e"], "tgt": ["u", "v", "w", "x"]}
D, D_FF, POSITIONS = 12, 7, 30
CUT = "SinusoidalConcat"


def sinusoids(kind):
    """Return what eole's class PositionalEncoding computes, in fp64."""
    numbers = np.arange(POSITIONS)[:, None]
    if kind == CUT:
        angles = numbers * np.exp(np.arange(D // 2) * -np.log(10_000) / (D // 2 - 1))
        return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    table = np.zeros((POSITIONS, D))
    angles = numbers * np.exp(np.arange(0, D, 2) * -np.log(10_000) / D)
    table[:, 0::2], table[:, 1::2] = np.sin(angles), np.cos(angles)
    return table


class EoleModel:
    """A random model; its ``config``, ``vocabulary`` and ``tensors`` can be changed."""

    def __init__(self, *, positions=None, shared=False, biases=(), **model):
        self.random = np.random.default_rng(5)
        self.positions = positions or "SinusoidalInterleaved"
        self.config: dict[str, Any] = {
            "model": {
                **{"architecture": "transformer", "layers": 2, "hidden_size": D, "heads": 3},
                **{"transformer_ff": D_FF, "generator_bias": "generator" in biases},
                "embeddings": {"position_encoding_type": self.positions},
                **model,
            }
        }
        words = {side: WORDS["src" if shared else side] for side in WORDS}
        self.vocabulary: dict[str, Any] = {
            **{side: [*SPECIALS, *of_side] for side, of_side in words.items()},
            "decoder_start_token": "<s>",
        }
        self.tensors: dict[str, np.ndarray] = {}
        for side, of_side in words.items():
            self._put(f"{side}_emb.embeddings.weight", len(SPECIALS) + len(of_side), D)
            if self.positions == "Learned":
                self._put(f"{side}_emb.pe.weight", POSITIONS, D)
            else:
                table = sinusoids(self.positions)[:, None].astype(np.float32)
                self.tensors[f"{side}_emb.pe.pe"] = table
        self._put("generator.weight", len(self.vocabulary["tgt"]), D)
        if "generator" in biases:
            self._put("generator.bias", len(self.vocabulary["tgt"]))
        for side in ("encoder", "decoder"):
            self._stack(side, biases)
        if self.config["model"].get("share_embeddings"):
            del self.tensors["tgt_emb.embeddings.weight"]
        if self.config["model"].get("share_decoder_embeddings"):
            del self.tensors["generator.weight"]

    def _put(self, name, *shape):
        self.tensors[name] = self.random.normal(0, 0.5, shape).astype(np.float32)

    def _linear(self, name, out, read, *, has_bias):
        self._put(f"{name}.weight", out, read)
        if has_bias:
            self._put(f"{name}.bias", out)

    def _stack(self, side, biases):
        model = self.config["model"]
        width = model.get("head_dim", D // model["heads"]) * model["heads"]
        attentions = ["self_attn", "context_attn"][: 2 if side == "decoder" else 1]
        for number in range(model["layers"]):
            layer = f"{side}.transformer_layers.{number}"
            for attention in attentions:
                for part in ("keys", "values", "query"):
                    name = f"{layer}.{attention}.linear_{part}"
                    self._linear(name, width, D, has_bias="attention" in biases)
                name = f"{layer}.{attention}.final_linear"
                self._linear(name, D, width, has_bias="attention" in biases)
            self._linear(f"{layer}.mlp.gate_up_proj", D_FF, D, has_bias="mlp" in biases)
            self._linear(f"{layer}.mlp.down_proj", D, D_FF, has_bias="mlp" in biases)
            norms = ["input", "post_attention", *(["precontext"] if side == "decoder" else [])]
            for norm in norms:
                self._linear(f"{layer}.{norm}_layernorm", D, 1, has_bias=True)
                self._make_vector(f"{layer}.{norm}_layernorm.weight")
            if side == "decoder":
                self.tensors[f"{layer}.layer_scalar"] = np.ones(1, np.float32)
        self._linear(f"{side}.layer_norm", D, 1, has_bias=True)
        self._make_vector(f"{side}.layer_norm.weight")

    def _make_vector(self, name):
        self.tensors[name] = self.tensors[name].reshape(D)

    def write(self, folder):
        """Write the folder; return it."""
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config))
        (folder / "vocab.json").write_text(json.dumps(self.vocabulary))
        safetensors.numpy.save_file(self.tensors, folder / "model.00.safetensors")
        return folder

    def scores(self, source, target):
        """Return the log-probabilities of the tokens of ``target`` and of its end."""
        source_ids, target_ids = (
            [self.vocabulary[side].index(token) for token in text.split()]
            for side, text in (("src", source), ("tgt", f"{target} </s>"))
        )
        start = self.vocabulary["tgt"].index(self.vocabulary["decoder_start_token"])
        found = self.plain().log_probabilities(source_ids, [start, *target_ids[:-1]])
        return found[np.arange(len(target_ids)), target_ids].tolist()

    def plain(self):
        """Return the model of the plain formula."""
        model, tensors = self.config["model"], self.tensors
        is_learned = self.positions == "Learned"
        first = tensors["src_emb.embeddings.weight"]
        embeddings = {side: tensors.get(f"{side}_emb.embeddings.weight", first) for side in WORDS}
        sides = []
        for name, side in (("encoder", "src"), ("decoder", "tgt")):
            table = tensors[f"{side}_emb.pe.weight"] if is_learned else sinusoids(self.positions)
            layers = [self._layer(name, number) for number in range(model["layers"])]
            sides.append(Side(embeddings[side], table, layers, self._pair(f"{name}.layer_norm")))
        projection = (
            tensors.get("generator.weight", embeddings["tgt"]), tensors.get("generator.bias")
        )  # fmt: skip
        names = {"gelu-tanh": "gelu_tanh", "silu": "swish"}
        activation = model.get("mlp_activation_fn", "relu")
        activation = names.get(activation, activation)
        options = Options(activation, model.get("norm_eps", 1e-5), 1.0 if is_learned else None)
        heads = (model["heads"], model["heads"])
        encoder, decoder = sides
        return PlainTransformer(encoder, decoder, projection, heads, (None, None), True, options)

    def _pair(self, name):
        return self.tensors[f"{name}.weight"], self.tensors.get(f"{name}.bias")

    def _layer(self, side, number):
        layer = f"{side}.transformer_layers.{number}"

        def attention(name, norm, *, is_causal=False):
            queries, keys, values, output = (
                self._pair(f"{layer}.{name}.{part}")
                for part in ("linear_query", "linear_keys", "linear_values", "final_linear")
            )
            norms = self._pair(f"{layer}.{norm}")
            return Attention(queries, keys, values, output, norms, is_causal)

        is_decoder = side == "decoder"
        return Layer(
            attention("self_attn", "input_layernorm", is_causal=is_decoder),
            attention("context_attn", "precontext_layernorm") if is_decoder else None,
            self._pair(f"{layer}.mlp.gate_up_proj"),
            self._pair(f"{layer}.mlp.down_proj"),
            self._pair(f"{layer}.post_attention_layernorm"),
        )
