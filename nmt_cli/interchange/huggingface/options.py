"""The options of our architecture that a model of Hugging Face has, from its ``config.json``."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from nmt_cli.interchange.huggingface.exporter import EPSILON
from nmt_cli.interchange.options import LARGEST, shown

TYPES = {"marian": "post", "pegasus": "pre"}  # and the place of their norms
ACTIVATIONS = {
    **{"relu": "relu", "silu": "swish", "swish": "swish", "gelu": "gelu", "gelu_python": "gelu"},
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), "gelu_tanh"),
}
# What transformers assumes if config.json lacks a key.
DEFAULTS: dict[str, dict[str, Any]] = {
    "marian": {"eos_token_id": 0, "decoder_start_token_id": 58_100},
    "pegasus": {"eos_token_id": 1, "decoder_start_token_id": 0},
}
# Keys that other programs read and these classes do not, with the values that they stand for.
IMPLIED = {"normalize_embedding": {"marian": False, "pegasus": False},
           "normalize_before": {"marian": False, "pegasus": True},
           "add_final_layer_norm": {"marian": False, "pegasus": True}}  # fmt: skip


class Configuration(NamedTuple):
    """The architecture of a model, from ``config.json``."""

    options: dict[str, Any]  # of our architecture
    sizes: tuple[int, int]  # rows of the embeddings of source and target
    eos_id: int
    start_id: int
    is_shared: bool  # both embeddings are one matrix
    is_tied: bool  # the matrix of the softmax is the target's


def read_configuration(config: Mapping[str, Any]) -> Configuration:
    """Return the configuration. Raises ValueError with all reasons against it."""
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in TYPES:
        known = " and ".join(TYPES)
        raise ValueError(f"its model_type is {shown(kind)}, and only {known} can be imported")
    reasons = [
        f"its {key} is {shown(config[key])}, which the class {kind} does not compute"
        for key, values in IMPLIED.items()
        if config.get(key, values[kind]) != values[kind]
    ]
    activation = config.get("activation_function", "gelu")
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        reasons.append(f"its activation_function is {shown(activation)}")
    if config.get("quantization_config"):
        reasons.append("its weights are quantized")
    counts = _Counts({**DEFAULTS[kind], **config}, reasons)
    d_model = counts.take("d_model")
    options: dict[str, Any] = {
        "norm": TYPES[kind],
        "norm_epsilon": EPSILON,
        "dropout": 0.0,
        "activation": ACTIVATIONS.get(str(activation), "relu"),
        "scale_embeddings": bool(config.get("scale_embedding", False)),
        "d_model": d_model,
    }
    options |= _sizes_of_layers(counts, d_model)
    is_tied = bool(config.get("tie_word_embeddings", True))
    is_shared = is_tied
    size = of_target = counts.take("vocab_size")
    if kind == "marian":
        is_shared = bool(config.get("share_encoder_decoder_embeddings", True))
        if not is_shared and config.get("decoder_vocab_size") is not None:
            of_target = counts.take("decoder_vocab_size")
    eos_id, start_id = (counts.take(f"{name}_token_id", 0) for name in ("eos", "decoder_start"))
    if start_id >= of_target:
        reasons.append(f"its decoder_start_token_id {start_id:,} is no piece")
    if reasons:
        raise ValueError("; ".join(dict.fromkeys(reasons)))
    return Configuration(options, (size, of_target), eos_id, start_id, is_shared, is_tied)


def _sizes_of_layers(counts: "_Counts", d_model: int) -> dict[str, int]:
    found = {}
    names = {"num_layers": "layers", "d_ff": "ffn_dim", "num_heads": "attention_heads"}
    for ours, theirs in names.items():
        found[ours], of_decoder = (
            counts.take(f"{side}_{theirs}") for side in ("encoder", "decoder")
        )
        if of_decoder != found[ours]:
            found[f"decoder_{ours}"] = of_decoder
        if ours == "num_heads" and (d_model % found[ours] or d_model % of_decoder):
            counts.reasons.append(f"its heads do not divide its d_model {d_model:,}")
    return found


class _Counts:
    def __init__(self, config: Mapping[str, Any], reasons: list[str]) -> None:
        self._config, self.reasons = config, reasons

    def take(self, key: str, least: int = 1) -> int:
        value = self._config.get(key)
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if type(value) is int and least <= value <= LARGEST:
            return value
        self.reasons.append(f"its {key} is {shown(value)}")
        return max(1, least)
