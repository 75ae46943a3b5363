"""The options of our architecture that a model of OpenNMT-py has, from those of its training."""

from collections.abc import Mapping
from typing import Any

from nmt_cli.interchange.arrays import SIDES
from nmt_cli.interchange.opennmt.model import Configuration
from nmt_cli.interchange.opennmt.weights import SINUSOIDS, Embeddings
from nmt_cli.interchange.option_values import count, shown

ACTIVATIONS = ("relu", "gelu")  # its silu multiplies by a second projection
EPSILON = 1e-6  # of checkpoints that lack norm_eps
# The values of options with which a model is ours, if it has them.
PLAIN: dict[str, tuple[Any, ...]] = {
    "encoder_type": ("transformer",),
    "decoder_type": ("transformer",),
    "model_type": ("text",),
    "model_task": ("seq2seq",),
    "position_encoding": (True,),
    "layer_norm": ("standard",),
    "self_attn_type": ("scaled-dot", "scaled-dot-flash"),
    "generator_function": ("softmax", None),
    "quant_type": ("", None),
    "lora_layers": ([], None),
    **dict.fromkeys(("copy_attn", "lora_embedding", "multiquery"), (False, None)),
    **dict.fromkeys(("parallel_residual", "shared_layer_norm"), (False, None)),
    **dict.fromkeys(("max_relative_positions", "relative_positions_buckets"), (0, None)),
    **dict.fromkeys(("num_kv", "sliding_window", "num_experts", "n_src_feats"), (0, None)),
}
NEEDED = ("encoder_type", "decoder_type", "position_encoding")  # their defaults are others
DEFAULTS = {"heads": 8, "transformer_ff": 2048}
EACH_SIDE = {"layers": ("enc_layers", "dec_layers"), "hidden_size": ("enc_hid_size",) * 2}


def read_configuration(opt: Mapping[str, Any]) -> Configuration:
    """Return the configuration. Raises ValueError with all reasons against it."""
    stated = DEFAULTS | dict(opt)
    reasons = [
        f"its {key} is {shown(opt.get(key))}"
        for key, values in PLAIN.items()
        if (key in opt or key in NEEDED) and opt.get(key) not in values
    ]
    sizes = {}
    for key, sides in EACH_SIDE.items():
        names = (key, key) if type(opt.get(key)) is int and opt[key] > 0 else sides
        sizes[key] = [count(stated, name, "it", reasons) for name in names]
    d_model, heads = sizes["hidden_size"][0], count(stated, "heads", "it", reasons)
    if d_model % heads:
        reasons.append(f"its heads do not divide its hidden_size {d_model:,}")
    activation = opt.get("pos_ffn_activation_fn", ACTIVATIONS[0])
    if activation not in ACTIVATIONS:
        reasons.append(f"its pos_ffn_activation_fn is {shown(activation)}")
    epsilon = opt.get("norm_eps", EPSILON)
    if type(epsilon) not in (int, float):
        reasons.append(f"its norm_eps is {shown(epsilon)}")
    kind = opt.get("position_encoding_type", next(iter(SINUSOIDS)))
    if kind not in list(SINUSOIDS):
        reasons.append(f"its position_encoding_type is {shown(kind)}")
    d_ff = count(stated, "transformer_ff", "it", reasons)
    if reasons:
        raise ValueError("; ".join(dict.fromkeys(reasons)))
    options = {
        **{"norm": "pre", "dropout": 0.0, "source_eos": False, "scale_embeddings": True},
        **{"activation": activation, "norm_epsilon": epsilon},
        **{"d_model": d_model, "num_heads": heads, "d_ff": d_ff},
        "num_layers": sizes["layers"][0],
    }
    if len(set(sizes["layers"])) > 1:
        options["decoder_num_layers"] = sizes["layers"][1]
    is_shared, is_tied = (
        bool(opt.get(f"share_{name}")) for name in ("embeddings", "decoder_embeddings")
    )
    embeddings = Embeddings(str(kind), is_shared, is_tied)
    return Configuration(options, embeddings, dict.fromkeys(SIDES, d_model))
