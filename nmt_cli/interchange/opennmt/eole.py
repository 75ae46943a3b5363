"""Imports a Transformer of eole, the successor of OpenNMT-py.

Its folder has config.json, vocab.json and the weights in model.00.safetensors and further parts.
Its sources have no mark of the end.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nmt_cli.corpus.tokenizers.normalization import Side
from nmt_cli.files.file_names import CONFIG
from nmt_cli.interchange.files import (
    LARGEST,
    NO_FILES,
    SIDES,
    TextFiles,
    activation,
    count,
    of_sides,
    read_config,
    read_parts,
    refuse,
    refusing,
    shown,
)
from nmt_cli.interchange.imported_model import ImportedModel
from nmt_cli.interchange.opennmt.model import (
    LEARNED,
    SINUSOIDS,
    Configuration,
    Embeddings,
    Names,
    Tokens,
    attention_names,
    make_model,
)
from nmt_cli.interchange.tensor_names import LayerNames, StackNames, dotted
from nmt_cli.interchange.vocabularies import list_of_texts, read_models, read_named_models
from nmt_cli.messages.errors import DamagedError, UserError

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
    refuse(reasons)
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
    key, epsilon = "mlp_activation_fn", encoder["norm_eps"]
    options: dict[str, Any] = {
        "activation": activation(encoder[key], ACTIVATIONS, key, reasons),
        "norm": "pre",
        "norm_epsilon": epsilon,
        "source_eos": False,
        "d_model": count(encoder, "hidden_size", "its encoder", reasons),
    }
    if type(epsilon) not in (int, float):
        reasons.append(f"its norm_eps is {shown(epsilon)}")
    for ours, theirs in SIZES.items():
        counts = (count(stack, theirs, f"its {side}", reasons) for side, stack in stacks.items())
        options |= of_sides(ours, *counts)
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


WEIGHTS, VOCABULARY = "model.00.safetensors", "vocab.json"
PARTS = "model.*.safetensors"
FOLDER = "${MODEL_PATH}/"  # before the names of files in config.json
SPECIALS = {"unk": "<unk>", "bos": "<s>", "eos": "</s>"}  # unless vocab.json has others
LISTS = ("src", "tgt")  # in vocab.json
SUBWORD_MODELS: dict[Side, str] = {"source": "src_subword_model", "target": "tgt_subword_model"}


def import_eole(folder: Path, files: TextFiles = NO_FILES) -> ImportedModel:
    """Return the model of ``folder``.

    Raises UserError with all reasons if it cannot be imported, or if a file cannot be
    read, and DamagedError if a file is damaged.
    """
    files.refuse_vocabularies("eole")
    for name in (CONFIG, VOCABULARY, WEIGHTS):
        if not (folder / name).is_file():
            raise UserError(f"{folder} has no {name}; give the folder of a model of eole.")
    config = read_config(folder)
    with refusing(folder):
        configuration = read_configuration(config)
        tensors = read_parts(sorted(folder.glob(PARTS)))
        models = read_named_models(files) or _own_sentencepiece(folder, config)
        return make_model(tensors, NAMES, configuration, _read_vocabularies(folder), models)


def _read_vocabularies(folder: Path) -> Tokens:
    """Return the tokens. Raises ValueError if the model lacks a mark."""
    content = read_config(folder, VOCABULARY)
    source, target = (_texts(folder, content, key) for key in LISTS)
    specials = content.get("specials")
    if not isinstance(specials, dict):
        specials = {}
    unknown, other_start, end = (
        specials.get(f"{key}_token", default) for key, default in SPECIALS.items()
    )
    start = content.get("decoder_start_token", SPECIALS["bos"])
    if other_start is None:  # which only a decoder that starts with the end needs
        other_start = SPECIALS["bos"]
    marks = {"unk_token": unknown, "bos_token": other_start, "eos_token": end}
    marks["decoder_start_token"] = start
    wrong = [key for key, mark in marks.items() if not isinstance(mark, str) or not mark]
    if wrong:
        raise ValueError(f"{VOCABULARY} names no token as {', '.join(wrong)}")
    return Tokens(source, target, unknown, end, start, other_start)


def _texts(folder: Path, content: Mapping[str, Any], key: str) -> list[str]:
    try:
        return list_of_texts(content.get(key))
    except ValueError:
        path = folder / VOCABULARY
        raise DamagedError(f"{path} is damaged: {key} is not a list of texts.") from None


def _own_sentencepiece(folder: Path, config: Mapping[str, Any]) -> dict[Side, bytes] | None:
    """Return the SentencePiece models that eole saved in the folder; None if there are none.

    Raises ValueError if the configuration names a file elsewhere.
    """
    transforms = config.get("transforms_configs")
    section = transforms.get("sentencepiece") if isinstance(transforms, dict) else None
    if not isinstance(section, dict) or "sentencepiece" not in _transforms(config):
        return None
    paths: dict[Side, Path] = {}
    for side, key in SUBWORD_MODELS.items():
        value = section.get(key)
        if value is None and paths:
            paths[side] = paths["source"]
            continue
        if not isinstance(value, str) or not value.startswith(FOLDER):
            return None
        name = value.removeprefix(FOLDER)
        if Path(name).name != name:
            raise ValueError(f"its {key} {value!a} is not a file in its folder")
        if not (folder / name).is_file():
            return None
        paths[side] = folder / name
    return read_models(paths)


def _transforms(config: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the names of all steps between text and pieces."""
    corpora = config.get("data")
    sections = [config, *(corpora.values() if isinstance(corpora, dict) else ())]
    for section in sections:
        names = section.get("transforms") if isinstance(section, dict) else None
        yield from names if isinstance(names, list) else ()


def _layer(side: str, number: int) -> LayerNames:
    layer = f"{side}.transformer_layers.{number}"
    return LayerNames(
        attention_names(f"{layer}.self_attn", f"{layer}.input_layernorm"),
        attention_names(f"{layer}.context_attn", f"{layer}.precontext_layernorm")
        if side == "decoder"
        else None,
        dotted(f"{layer}.mlp.gate_up_proj"),
        dotted(f"{layer}.mlp.down_proj"),
        dotted(f"{layer}.post_attention_layernorm"),
        # Only layers without attention to an encoder multiply by this number.
        unused=(f"{layer}.layer_scalar",) if side == "decoder" else (),
    )


NAMES = Names(
    embeddings=[f"{name}_emb.embeddings.weight" for name in LISTS],
    sinusoids=[f"{name}_emb.pe.pe" for name in LISTS],
    learned=[f"{name}_emb.pe.weight" for name in LISTS],
    output=dotted("generator"),
    stack=StackNames(_layer, last_norm=lambda side: dotted(f"{side}.layer_norm")),
)
