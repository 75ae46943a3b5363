"""The options of our architecture that a model of fairseq has, from the options of its training."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from nmt_cli.interchange.options import activation, count, of_sides, refuse, shown

ARCHITECTURES = ("transformer", "transformer_tiny", "transformer_align")
# Names of architectures that start so are sizes of the same class.
SIZES_OF = ("transformer_iwslt_de_en", "transformer_wmt_en_de", "transformer_vaswani_wmt_en_")
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_accurate": "gelu_tanh"}
ACTIVATIONS["gelu_fast"] = "gelu_tanh"  # its old name
EPSILON = 1e-5
# What computes something else than our architecture if it is set.
OTHER_WAYS = (
    *("adaptive_input", "adaptive_softmax_cutoff", "base_layers", "char_inputs"),
    *("cross_self_attention", "no_cross_attention", "no_token_positional_embeddings"),
    *("encoder_layers_to_keep", "decoder_layers_to_keep", "merge_src_tgt_embed"),
    *("scale_attn", "scale_fc", "scale_heads", "scale_resids"),
    *("encoder_xformers_att_config", "decoder_xformers_att_config"),
)
# Old checkpoints of pre-norm models with these versions, or none, have no norm after the layers.
LAST_WITHOUT_NORM = {"encoder": 1.0, "decoder": 2.0}
DEFAULTS = {"embed_dim": 512, "ffn_embed_dim": 2048, "layers": 6, "attention_heads": 8}
LANGUAGE = re.compile(r"[\w.-]{1,100}")


class Configuration(NamedTuple):
    """The architecture of a model, from its options."""

    options: dict[str, Any]  # of our architecture
    languages: tuple[str | None, str | None]
    is_shared: bool  # one matrix is that of source, target and softmax
    is_tied: bool  # the matrix of the softmax is the target's
    is_learned: bool  # positions are


def read_configuration(
    theirs: Mapping[str, Any], task: Mapping[str, Any], versions: Mapping[str, float]
) -> Configuration:
    """Return the configuration. Raises ValueError with all reasons against it.

    ``versions`` are those of the encoder and the decoder.
    """
    reasons = [f"its {key} is {shown(theirs[key])}" for key in OTHER_WAYS if theirs.get(key)]
    kind = theirs.get("arch") or theirs.get("_name") or "transformer"
    if not isinstance(kind, str) or not (kind in ARCHITECTURES or kind.startswith(SIZES_OF)):
        reasons.append(f"its architecture is {shown(kind)}, which is not fairseq's transformer")
    job = task.get("task") or task.get("_name") or "translation"
    if job != "translation":
        reasons.append(f"its task is {shown(job)}, not translation")
    kind = theirs.get("activation_fn", "relu")
    options: dict[str, Any] = {
        "activation": activation(kind, ACTIVATIONS, "activation_fn", reasons),
        "norm": _norm(theirs, versions, reasons),
        "norm_epsilon": EPSILON,
        "scale_embeddings": not theirs.get("no_scale_embedding"),
        "embedding_norm": bool(theirs.get("layernorm_embedding")),
        "decoder_start": "eos",
        **_sizes(theirs, reasons),
    }
    learned = {bool(theirs.get(f"{side}_learned_pos")) for side in LAST_WITHOUT_NORM}
    if len(learned) > 1:
        reasons.append("only one of its sides has learned positions")
    refuse(reasons)
    is_shared = bool(theirs.get("share_all_embeddings"))
    is_tied = is_shared or bool(theirs.get("share_decoder_input_output_embed"))
    source, target = (_language(task.get(f"{side}_lang")) for side in ("source", "target"))
    return Configuration(options, (source, target), is_shared, is_tied, True in learned)


def _norm(theirs: Mapping[str, Any], versions: Mapping[str, float], reasons: list[str]) -> str:
    """Return the place of the norms."""
    before = {side: bool(theirs.get(f"{side}_normalize_before")) for side in LAST_WITHOUT_NORM}
    if len(set(before.values())) > 1:
        reasons.append("only one of its sides has its norms before the layers")
    elif not before["decoder"]:
        return "post"
    if theirs.get("no_decoder_final_norm"):
        reasons.append("its decoder has no norm after the layers")
    for side, last in LAST_WITHOUT_NORM.items():
        if before[side] and versions[side] <= last:
            reasons.append(
                f"its {side} has the version {versions[side]:g}, and so no norm after the layers"
            )
    return "pre"


def _sizes(theirs: Mapping[str, Any], reasons: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    names = {"num_layers": "layers", "d_ff": "ffn_embed_dim", "num_heads": "attention_heads"}
    d_model = _count(theirs, "encoder_embed_dim", DEFAULTS["embed_dim"], reasons)
    for key in ("decoder_embed_dim", "decoder_input_dim", "decoder_output_dim"):
        width = _count(theirs, key, d_model, reasons)
        if width != d_model:
            reasons.append(f"its {key} is {width:,}, its encoder_embed_dim {d_model:,}")
    for ours, name in names.items():
        encoder, decoder = (
            _count(theirs, f"{side}_{name}", DEFAULTS[name], reasons) for side in LAST_WITHOUT_NORM
        )
        found |= of_sides(ours, encoder, decoder)
        if ours == "num_heads" and (d_model % encoder or d_model % decoder):
            reasons.append(f"its heads do not divide its encoder_embed_dim {d_model:,}")
    return {"d_model": d_model, **found}


def _count(theirs: Mapping[str, Any], key: str, default: int, reasons: list[str]) -> int:
    value = theirs.get(key)
    if value is None or (isinstance(value, str) and value.startswith("${")):
        return default  # a reference to what the default stands for
    return count(theirs, key, "it", reasons)


def _language(value: Any) -> str | None:
    """Return the code of a language, or None if it is not fit for the name of a file."""
    return value if isinstance(value, str) and LANGUAGE.fullmatch(value) else None
