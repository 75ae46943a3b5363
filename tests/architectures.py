"""Small architectures in which each pair of options meets, and what they compute by formula.

The formula is written with ``torch.nn.functional``, for one sentence pair at a time.
"""

import itertools
from typing import Any

import torch
from torch.nn import functional as F

from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe.sections.model import ModelConfig

SMALL: dict[str, Any] = {"num_layers": 2, "d_model": 20, "d_ff": 28, "num_heads": 5, "dropout": 0.0}
# Each option with its values; some values are those of several keys.
VALUES: dict[str, list[Any]] = {
    "norm": ["post", "pre"],
    "tied_embeddings": [
        "all",
        "decoder",
        "none",
        *({"tied_embeddings": tied, "source_vocabulary_size": 97} for tied in ("decoder", "none")),
    ],
    "positions": [
        "sinusoidal",
        "learned",
        {"sinusoid_frequencies": "tensor2tensor"},
        {"first_position": 2},
    ],
    "d_k": [None, 3],
    "activation": ["relu", "gelu", "gelu_tanh", "swish"],
    "attention_biases": [False, True],
    "feed_forward_biases": [True, False],
    "norm_epsilon": [1e-5, 1e-2],
    "embedding_norm": [False, True],
    "scale_embeddings": [True, False],
    "output_bias": [False, True],
    "attention_window": [None, 2],
    "decoder": ["attention", "ssru"],
    "decoder_start": ["bos", "eos", "zeros"],
    "source_eos": [True, False],
    "decoder_num_layers": [None, 1, 3],
    "decoder_d_ff": [None, 12],
    "decoder_num_heads": [None, 2],
}


def _choices():
    """Return choices of a value of each option, so that each two values occur together."""
    waiting = {
        pair
        for one, other in itertools.combinations(VALUES, 2)
        for pair in itertools.product(
            [(one, place) for place in range(len(VALUES[one]))],
            [(other, place) for place in range(len(VALUES[other]))],
        )
    }
    found = []
    while waiting:
        choice = dict(min(waiting))
        for name in VALUES:
            if name not in choice:
                tried = [{**choice, name: place} for place in range(len(VALUES[name]))]
                choice = max(tried, key=lambda each: len(_pairs(each) & waiting))
        waiting -= _pairs(choice)
        found.append(choice)
    return found


def _pairs(choice):
    ordered = [(name, choice[name]) for name in VALUES if name in choice]
    return set(itertools.combinations(ordered, 2))


def _options(choice):
    options = {}
    for name, place in choice.items():
        value = VALUES[name][place]
        options.update(value if isinstance(value, dict) else {name: value})
    return options


CHOICES = _choices()
OPTION_SETS = [_options(choice) for choice in CHOICES]
EXPORTED_SETS = [
    {**options, "attention_window": None, "decoder": "attention"} for options in OPTION_SETS
]


def config_of(options):
    """Return the architecture with these options."""
    return ModelConfig(**SMALL, max_positions=64, **options)


def random_model(options, vocabulary_size):
    """Return a model whose parameters are all random, also those that begin at 0 or 1."""
    torch.manual_seed(7)
    model = Transformer(config_of(options), vocabulary_size)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


class Formula:
    """What a model computes, from its configuration and its parameters by name."""

    def __init__(self, model):
        self.config = model.config
        self.weights = dict(model.named_parameters(remove_duplicate=False))

    def logits(self, source, target_input):
        """Return the logits [T, V] of one pair of token lists."""
        memory = self.embedded("source", source)
        for number in range(SMALL["num_layers"]):
            memory = self.layer(f"encoder_layers.{number}", memory, None)
        memory = self.last_norm("encoder", memory)
        rows = self.embedded("target", target_input)
        for number in range(self.config.decoder_num_layers or SMALL["num_layers"]):
            rows = self.layer(f"decoder_layers.{number}", rows, memory)
        rows = self.last_norm("decoder", rows)
        return F.linear(rows, self.weights["output_weight"], self.weights.get("output_bias"))

    def token_scores(self, source, target, tokenizer):
        """Return the log-probability of each token of ``target`` and of ``</s>``."""
        end = [tokenizer.eos_id]
        start = end if self.config.decoder_start == "eos" else [tokenizer.bos_id]
        logits = self.logits([*source, *end] if self.config.source_eos else source, start + target)
        return logits.log_softmax(1).gather(1, torch.tensor([target + end]).T).flatten().tolist()

    def nll(self, source, target, tokenizer):
        return -sum(self.token_scores(source, target, tokenizer))

    def embedded(self, side, tokens):
        vectors = F.embedding(torch.tensor(tokens), self.weights[f"{side}_embedding.weight"])
        if side == "target" and self.config.decoder_start == "zeros":
            vectors = torch.cat([torch.zeros_like(vectors[:1]), vectors[1:]])
        if self.config.scale_embeddings:
            vectors = vectors * self.config.d_model**0.5
        vectors = vectors + self.places(side, len(tokens)).to(vectors)
        if self.config.embedding_norm:
            vectors = self.norm(f"{side}_embedding.norm", vectors)
        return vectors

    def places(self, side, length):
        if self.config.positions == "learned":
            return self.weights[f"{side}_embedding.positions.weight"][:length]
        place = self.config.first_position + torch.arange(length, dtype=torch.float64)[:, None]
        half = torch.arange(self.config.d_model // 2, dtype=torch.float64)
        last = self.config.d_model / 2
        if self.config.sinusoid_frequencies == "tensor2tensor":
            last -= 1
        angles = place * 10_000 ** (-half / last)
        return torch.stack([angles.sin(), angles.cos()], 2).flatten(1)

    def layer(self, name, rows, memory):
        is_decoder = memory is not None
        if is_decoder and self.config.decoder == "ssru":
            rows = self.residual(
                f"{name}.recurrence",
                rows,
                lambda rows: self.recurrence(f"{name}.recurrence", rows),
            )
        else:
            rows = self.residual(
                f"{name}.self_attention",
                rows,
                lambda rows: self.attention(
                    f"{name}.self_attention", rows, rows, causal=is_decoder
                ),
            )
        if is_decoder:
            rows = self.residual(
                f"{name}.memory_attention",
                rows,
                lambda rows: self.attention(f"{name}.memory_attention", rows, memory),
            )
        return self.residual(
            f"{name}.feed_forward",
            rows,
            lambda rows: self.linear(
                f"{name}.feed_forward.outer",
                self.activated(self.linear(f"{name}.feed_forward.inner", rows)),
            ),
        )

    def recurrence(self, name, rows):
        """Return the output of SSRU, a row after the other (Kim et al. 2019)."""
        state, outputs = torch.zeros_like(rows[0]), []
        for row in rows:
            forget = torch.sigmoid(self.linear(f"{name}.forget_gates", row))
            state = forget * state + (1 - forget) * self.linear(f"{name}.candidates", row)
            outputs.append(F.relu(state))
        return torch.stack(outputs)

    def residual(self, name, rows, sublayer):
        if self.config.norm == "pre":
            return rows + sublayer(self.norm(f"{name}_residual.norm", rows))
        return self.norm(f"{name}_residual.norm", rows + sublayer(rows))

    def norm(self, name, rows):
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return F.layer_norm(rows, weight.shape, weight, bias, self.config.norm_epsilon)

    def last_norm(self, side, rows):
        return self.norm(f"{side}_norm", rows) if self.config.norm == "pre" else rows

    def linear(self, name, rows):
        return F.linear(rows, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))

    def activated(self, inner):
        by_name: dict[str, Any] = {
            "relu": F.relu,
            "gelu": F.gelu,
            "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
            "swish": lambda x: x * torch.sigmoid(x),
        }
        return by_name[self.config.activation](inner)

    def attention(self, name, rows, memory, *, causal=False):
        heads = SMALL["num_heads"]
        if name.startswith("decoder"):
            heads = self.config.decoder_num_heads or heads
        d_k, d_v = self.config.d_k or SMALL["d_model"] // heads, SMALL["d_model"] // heads
        if f"{name}.queries.weight" in self.weights:
            queries = self.linear(f"{name}.queries", rows)
            keys, values = self.linear(f"{name}.keys_values", memory).split(
                [heads * d_k, heads * d_v], 1
            )
        else:
            queries, keys, values = self.linear(f"{name}.queries_keys_values", rows).split(
                [heads * d_k, heads * d_k, heads * d_v], 1
            )
        queries, keys, values = (
            part.unflatten(1, (heads, -1)).transpose(0, 1) for part in (queries, keys, values)
        )
        mask = torch.ones(len(rows), len(memory), dtype=torch.bool)
        if causal:
            mask = mask.tril()
        if (window := self.config.attention_window) and "self_attention" in name:
            mask = mask.triu(-window).tril(window)
        attended = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        return self.linear(f"{name}.output", attended.transpose(0, 1).flatten(1))
