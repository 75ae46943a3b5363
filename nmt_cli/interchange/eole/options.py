"""The options of our architecture that a model of eole has, from its ``config.json``."""

from collections.abc import Mapping
from typing import Any

from nmt_cli.interchange.files import SIDES
from nmt_cli.interchange.opennmt.model import Configuration
from nmt_cli.interchange.opennmt.weights import LEARNED, SINUSOIDS, Embeddings
from nmt_cli.interchange.options import LARGEST, count, shown

ARCHITECTURES = ("transformer", "custom")  # the latter if config.json has none
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu-tanh": "gelu_tanh", "silu": "swish"}
# What eole assumes if config.json lacks a key.
DEFAULTS: dict[str, Any] = {
    **{"layers": 2, "hidden_size": 512, "heads": 8, "transformer_ff": 2048, "head_dim": None},
    **{"mlp_activation_fn": "relu", "norm_eps": 1e-5},
}
SIZES = {"num_layers": "layers", "num_heads": "heads", "d_ff": "transformer_ff"}  # ours: theirs
# The values of keys with which a layer is ours; the first is the default.
PLAIN: dict[str, tuple[Any, ...]] = {
    "layer_norm": ("standard", "standardFP32"),
    **dict.fromkeys(("shared_layer_norm", "ffn_layernorm", "parallel_residual"), (False,)),
    **dict.fromkeys(("query_norm", "key_norm", "value_norm", "q_gating"), (False,)),
    **dict.fromkeys(("sliding_window", "relative_positions_buckets", "num_experts"), (0, None)),
    **dict.fromkeys(("layer_types", "global_head_dim", "global_heads_kv"), (None,)),
    "encoder_layer_style": ("standard",),
    "final_encoder_layer_norm": (True,),
    "num_mtp_heads": (0,),
}


def read_configuration(config: Mapping[str, Any]) -> Configuration:
    """Return the configuration. Raises ValueError with all reasons against it."""
    model = config.get("model")
    if not isinstance(model, dict):
        raise ValueError("its config.json has no section model")
    architecture = model.get("architecture", ARCHITECTURES[-1])
    if architecture not in ARCHITECTURES:
        raise ValueError(f"its architecture is {shown(architecture)}, not transformer")
    reasons: list[str] = []
    stacks = {side: _stack(model, side, architecture, reasons) for side in SIDES}
    options = _options(stacks, reasons)
    widths = _widths(stacks, options, reasons)
    embeddings = _embeddings(model, reasons)
    if reasons:
        raise ValueError("; ".join(dict.fromkeys(reasons)))
    options["scale_embeddings"] = embeddings.positions != LEARNED
    return Configuration(options, embeddings, widths)


def _stack(
    model: Mapping[str, Any], side: str, architecture: str, reasons: list[str]
) -> dict[str, Any]:
    """Return the options of a side: those of its section, else of the model, else the defaults."""
    section = model.get(side)
    if not isinstance(section, dict):
        section = {}
    kind = section.get(f"{side}_type", "transformer" if architecture == "transformer" else None)
    if kind != "transformer":
        reasons.append(f"its {side} is {shown(kind)}, not transformer")
    stack = {**DEFAULTS, **model, **section}
    for key, values in PLAIN.items():
        value = stack.get(key, values[0])
        if value not in values:
            reasons.append(f"its {side} has {key} {shown(value)}")
    if stack.get("heads_kv") not in (None, stack["heads"]):
        reasons.append(f"its {side} has heads_kv {shown(stack['heads_kv'])}, not as many as heads")
    return stack


def _options(stacks: Mapping[str, Mapping[str, Any]], reasons: list[str]) -> dict[str, Any]:
    encoder, decoder = stacks.values()
    for key in ("hidden_size", "mlp_activation_fn", "norm_eps"):
        if encoder[key] != decoder[key]:
            reasons.append(f"its encoder and decoder differ in {key}")
    activation, epsilon = encoder["mlp_activation_fn"], encoder["norm_eps"]
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        reasons.append(f"its mlp_activation_fn is {shown(activation)}")
    if type(epsilon) not in (int, float):
        reasons.append(f"its norm_eps is {shown(epsilon)}")
    options: dict[str, Any] = {
        "norm": "pre",
        "norm_epsilon": epsilon,
        "dropout": 0.0,
        "activation": ACTIVATIONS.get(str(activation), "relu"),
        "source_eos": False,
        "d_model": count(encoder, "hidden_size", "its encoder", reasons),
    }
    for ours, theirs in SIZES.items():
        options[ours], of_decoder = (
            count(stack, theirs, f"its {side}", reasons) for side, stack in stacks.items()
        )
        if of_decoder != options[ours]:
            options[f"decoder_{ours}"] = of_decoder
    return options


def _widths(
    stacks: Mapping[str, Mapping[str, Any]], options: dict[str, Any], reasons: list[str]
) -> dict[str, int]:
    """Return the width of all heads of each side, and enter that of one into the options."""
    d_model, of_heads, widths = options["d_model"], {}, {}
    for side, stack in stacks.items():
        heads = options["num_heads"]
        if side == "decoder":
            heads = options.get("decoder_num_heads", heads)
        width = d_model // heads
        if stack["head_dim"] is not None:
            width = count(stack, "head_dim", f"its {side}", reasons)
        elif d_model % heads:
            reasons.append(f"the heads of its {side} do not divide its hidden_size {d_model:,}")
        if stack.get("attn_scaling") not in (None, width):
            reasons.append(f"its {side} has attn_scaling {shown(stack['attn_scaling'])}")
        widths[side] = width * heads
        of_heads[side] = width
    if set(widths.values()) != {d_model}:
        options |= dict.fromkeys(("d_k", "d_v"), of_heads["encoder"])
        if len(set(of_heads.values())) > 1:
            reasons.append("its encoder and decoder differ in head_dim")
    return widths


def _embeddings(model: Mapping[str, Any], reasons: list[str]) -> Embeddings:
    found = model.get("embeddings")
    section = found if isinstance(found, dict) else {}
    kind = section.get("position_encoding_type", next(iter(SINUSOIDS)))
    if kind != LEARNED and (not isinstance(kind, str) or kind not in SINUSOIDS):
        reasons.append(f"its position_encoding_type is {shown(kind)}")
    if section.get("embedding_type", "standard") != "standard":
        reasons.append(f"its embedding_type is {shown(section['embedding_type'])}")
    if section.get("normalize"):
        reasons.append("it multiplies the sum of token vectors and positions (normalize)")
    shift = section.get("position_shift") or 0
    if type(shift) is not int or not 0 <= shift <= LARGEST:
        reasons.append(f"its position_shift is {shown(shift)}")
    is_shared, is_tied = (
        bool(model.get(f"share_{name}", False)) for name in ("embeddings", "decoder_embeddings")
    )
    has_bias = bool(model.get("generator_bias", True))
    return Embeddings(str(kind), is_shared, is_tied, has_bias, shift)
