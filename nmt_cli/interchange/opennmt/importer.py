"""Imports a Transformer of OpenNMT-py 3 from its checkpoint.

Its sources have no mark of the end.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmt_cli.interchange.files import NO_FILES, SIDES, TextFiles
from nmt_cli.interchange.imported_model import ImportedModel
from nmt_cli.interchange.opennmt.checkpoint import read_checkpoint
from nmt_cli.interchange.opennmt.model import (
    SINUSOIDS,
    Configuration,
    Embeddings,
    Names,
    Tokens,
    attention_names,
    make_model,
)
from nmt_cli.interchange.options import activation, count, of_sides, refuse, refusing, shown
from nmt_cli.interchange.pickled_tensors import LARGEST_PICKLE
from nmt_cli.interchange.tensor_names import LayerNames, StackNames, dotted
from nmt_cli.interchange.vocabularies import list_of_texts, read_named_models

ACTIVATIONS = {"relu": "relu", "gelu": "gelu"}  # its silu multiplies by a second projection
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
    key = "pos_ffn_activation_fn"
    options: dict[str, Any] = {
        "activation": activation(opt.get(key, "relu"), ACTIVATIONS, key, reasons)
    }
    epsilon = opt.get("norm_eps", EPSILON)
    if type(epsilon) not in (int, float):
        reasons.append(f"its norm_eps is {shown(epsilon)}")
    kind = opt.get("position_encoding_type", next(iter(SINUSOIDS)))
    if kind not in list(SINUSOIDS):
        reasons.append(f"its position_encoding_type is {shown(kind)}")
    d_ff = count(stated, "transformer_ff", "it", reasons)
    refuse(reasons)
    options |= {
        **{"norm": "pre", "source_eos": False, "scale_embeddings": True, "norm_epsilon": epsilon},
        **{"d_model": d_model, "num_heads": heads, "d_ff": d_ff},
        **of_sides("num_layers", *sizes["layers"]),
    }
    is_shared, is_tied = (
        bool(opt.get(f"share_{name}")) for name in ("embeddings", "decoder_embeddings")
    )
    embeddings = Embeddings(str(kind), is_shared, is_tied)
    return Configuration(options, embeddings, dict.fromkeys(SIDES, d_model))


UNKNOWN, START, END = "<unk>", "<s>", "</s>"
STACKS = {"encoder": "transformer", "decoder": "transformer_layers"}


def import_opennmt(path: Path, files: TextFiles = NO_FILES) -> ImportedModel:
    """Return the model of the checkpoint ``path``.

    Raises UserError with all reasons if it cannot be imported, or if a file cannot be
    read, and DamagedError if a file is damaged.
    """
    files.refuse_vocabularies("OpenNMT-py")
    checkpoint = read_checkpoint(path)
    with refusing(path):
        configuration = read_configuration(checkpoint.options)
        tokens = _tokens(checkpoint.vocabulary)
        models = read_named_models(files)
        return make_model(checkpoint.tensors, NAMES, configuration, tokens, models)


def _tokens(vocabulary: Mapping[str, Any]) -> Tokens:
    """Return the tokens. Raises ValueError if the checkpoint has none, or has features as well."""
    lists = []
    for key in ("src", "tgt"):
        try:
            lists.append(list_of_texts(vocabulary.get(key)))
        except ValueError as error:
            raise ValueError(f"its vocabulary {key} {error}") from None
        if sum(map(len, lists[-1])) > LARGEST_PICKLE:  # one text, many times
            raise ValueError(f"its vocabulary {key} is too large")
    if vocabulary.get("src_feats"):
        raise ValueError("it has source features")
    start = vocabulary.get("decoder_start_token", START)
    if not isinstance(start, str) or not start:
        raise ValueError("its decoder starts with no token")
    source, target = lists
    return Tokens(source, target, UNKNOWN, END, start, other_start=START)


def _layer(side: str, number: int) -> LayerNames:
    layer = f"{side}.{STACKS[side]}.{number}"
    is_decoder = side == "decoder"
    return LayerNames(
        attention_names(f"{layer}.self_attn", f"{layer}.layer_norm{'_1' if is_decoder else ''}"),
        attention_names(f"{layer}.context_attn", f"{layer}.layer_norm_2") if is_decoder else None,
        dotted(f"{layer}.feed_forward.w_1"),
        dotted(f"{layer}.feed_forward.w_2"),
        dotted(f"{layer}.feed_forward.layer_norm"),
    )


_EMBEDDINGS = [f"{side}.embeddings.make_embedding" for side in SIDES]
NAMES = Names(
    embeddings=[f"{name}.emb_luts.0.weight" for name in _EMBEDDINGS],
    sinusoids=[f"{name}.pe.pe" for name in _EMBEDDINGS],
    learned=(),
    output=dotted("generator"),
    stack=StackNames(_layer, last_norm=lambda side: dotted(f"{side}.layer_norm")),
)
