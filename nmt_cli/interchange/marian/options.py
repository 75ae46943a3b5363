"""The options of our architecture that a model of Marian has, from its ``special:model.yml``."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from nmt_cli.messages.errors import DamagedError
from nmt_cli.recipe.yaml_tree import MAX_BYTES, parse_yaml, shortened

# Keys that our architecture has no option for, with the values that it computes; the first one is
# Marian's default, also for versions that do not have the key.
FIXED: dict[str, tuple[Any, ...]] = {
    "transformer-decoder-autoreg": ("self-attention",),
    "transformer-ffn-depth": ("2",),
    "transformer-decoder-ffn-depth": ("0", "2"),
    "transformer-attention-mask": ("default",),
    "transformer-tied-layers": ([],),
    "input-types": ([], ["sequence", "sequence"]),
    "lemma-dim-emb": ("0",),
    **dict.fromkeys(
        ("right-left", "ulr", "transformer-no-projection", "transformer-pool",
         "transformer-disable-position-embeddings"),
        ("false",),
    ),
}  # fmt: skip
ACTIVATIONS = ("swish", "relu", "gelu")
# Operations before and after each sub-layer, and after the last layer: n is the norm, a the sum.
PLACES = {("", "an", ""): "post", ("n", "a", "n"): "pre"}
OPERATIONS = (
    "transformer-preprocess",
    "transformer-postprocess",
    "transformer-postprocess-top",
)
EPSILON = 1e-6
COUNT = re.compile(r"[0-9]{1,7}")


class Configuration(NamedTuple):
    """The architecture of a model, from its settings."""

    options: dict[str, Any]  # of our architecture
    is_shared: bool  # both embeddings are one matrix
    is_tied: bool  # the matrix of the softmax is the target's
    has_output_bias: bool


def read_settings(text: str, name: str) -> dict[str, Any]:
    """Return the keys of a YAML file of Marian; lists, texts and None are the values.

    Raises DamagedError, which calls the file ``name``, if it is something else.
    """
    tree = parse_yaml(text if len(text) <= MAX_BYTES else "", name)
    finding = str(tree.findings[0]) if tree.findings else f"{name}: it has no keys"
    if len(text) > MAX_BYTES:
        finding = f"{name}: it is longer than {MAX_BYTES:,} characters"
    if tree.findings or not isinstance(tree.value, dict):
        raise DamagedError(f"{finding}; it is damaged, or Marian did not write it.")
    return tree.value


def read_configuration(settings: Mapping[str, Any], reasons: list[str]) -> Configuration:
    """Return the options; add to ``reasons`` what our architecture cannot represent.

    Raises ValueError with all reasons if it is no Transformer at all.
    """
    if settings.get("type") != "transformer":
        reasons.append(f"its type is {_shown(settings.get('type'))}, not transformer")
        raise ValueError("; ".join(reasons))
    flags = {key for key, value in settings.items() if value == "true"}
    return Configuration(
        _options(settings, reasons),
        is_shared=not flags.isdisjoint({"tied-embeddings-all", "tied-embeddings-src"}),
        is_tied=not flags.isdisjoint({"tied-embeddings-all", "tied-embeddings"}),
        has_output_bias="output-omit-bias" not in flags,
    )


def _options(settings: Mapping[str, Any], reasons: list[str]) -> dict[str, Any]:
    for key, allowed in FIXED.items():
        if settings.get(key) is not None and settings[key] not in allowed:
            reasons.append(f"its {key} is {_shown(settings[key])}")
    activation = _text(settings, "transformer-ffn-activation", ACTIVATIONS[0])
    if activation not in ACTIVATIONS:
        reasons.append(f"its transformer-ffn-activation is {_shown(activation)}")
    places = tuple(_text(settings, key, "").replace("d", "") for key in OPERATIONS)
    if places not in PLACES:
        given = ", ".join(f"{key} {_shown(settings.get(key) or '')!r}" for key in OPERATIONS)
        reasons.append(f"it has {given}; only post-norm (dan) and pre-norm (n, da, n) are known")
    after_embedding = _text(settings, "transformer-postprocess-emb", "").replace("d", "")
    if after_embedding not in ("", "n"):
        reasons.append(f"its transformer-postprocess-emb is {_shown(after_embedding)}")
    return {
        "norm": "pre" if "n" in places[0] else "post",
        "norm_epsilon": EPSILON,
        "dropout": 0.0,
        "activation": activation,
        "embedding_norm": after_embedding == "n",
        "decoder_start": "zeros",
        **_positions(settings),
        **_sizes(settings, reasons),
    }


def _positions(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of positions; Marian does not scale embeddings beside learned ones."""
    if settings.get("transformer-train-positions") == "true":
        return {"positions": "learned", "scale_embeddings": False}
    return {"positions": "sinusoidal", "sinusoid_frequencies": "tensor2tensor"}


def _sizes(settings: Mapping[str, Any], reasons: list[str]) -> dict[str, int]:
    def count(key: str, least: int = 1) -> int:
        value = settings.get(key)
        if isinstance(value, str) and COUNT.fullmatch(value) and int(value) >= least:
            return int(value)
        reasons.append(f"its {key} is {_shown(value)}")
        return max(least, 1)

    found = {
        "d_model": count("dim-emb"),
        "num_heads": count("transformer-heads"),
        "num_layers": count("enc-depth"),
        "d_ff": count("transformer-dim-ffn"),
    }
    if found["d_model"] % found["num_heads"]:
        reasons.append(f"its transformer-heads do not divide its dim-emb {found['d_model']:,}")
    of_decoder = {"num_layers": count("dec-depth"), "d_ff": 0}
    if settings.get("transformer-decoder-dim-ffn") is not None:
        of_decoder["d_ff"] = count("transformer-decoder-dim-ffn", 0)
    for key, value in of_decoder.items():
        if value not in (0, found[key]):
            found[f"decoder_{key}"] = value
    return found


def _text(settings: Mapping[str, Any], key: str, default: str) -> str:
    value = settings.get(key)
    return default if value is None else value if isinstance(value, str) else _shown(value)


def _shown(value: Any) -> str:
    return shortened(value if isinstance(value, str) else str(value))
