"""Imports a Transformer of eole, the successor of OpenNMT-py.

Its folder has config.json, vocab.json and the weights in model.00.safetensors and further parts.
Its sources have no mark of the end.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nmt_cli.corpus.tokenizers.normalization import Side
from nmt_cli.files.file_names import CONFIG
from nmt_cli.interchange.files import NO_FILES, SIDES, TextFiles, read_config, read_parts
from nmt_cli.interchange.imported_model import ImportedModel
from nmt_cli.interchange.opennmt import importer as opennmt
from nmt_cli.interchange.options import Options, read_sizes, refuse, refusing, shown
from nmt_cli.interchange.tensor_names import StackNames, dotted, parts_of_layer
from nmt_cli.interchange.vocabularies import list_of_texts, read_models
from nmt_cli.messages.errors import DamagedError, UserError

ARCHITECTURES = ("transformer", "custom")  # the latter if config.json has none
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu-tanh": "gelu_tanh", "silu": "swish"}
# What eole assumes if config.json lacks a key.
DEFAULTS: dict[str, Any] = {
    **{"layers": 2, "hidden_size": 512, "heads": 8, "transformer_ff": 2048, "head_dim": None},
    **{"mlp_activation_fn": "relu", "norm_eps": 1e-5},
}
SIZES = {
    "d_model": "hidden_size",
    "num_layers": "layers",
    "num_heads": "heads",
    "d_ff": "transformer_ff",
}
POSITIONS = {name: name for name in (*opennmt.SINUSOIDS, opennmt.LEARNED)}
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


def read_configuration(config: Mapping[str, Any]) -> opennmt.Configuration:
    """Return the configuration. Raises ValueError with all reasons against it."""
    model = config.get("model")
    if not isinstance(model, dict):
        raise ValueError("its config.json has no section model")
    architecture = model.get("architecture", ARCHITECTURES[-1])
    if architecture not in ARCHITECTURES:
        raise ValueError(f"its architecture is {shown(architecture)}, not transformer")
    reasons: list[str] = []
    encoder, decoder = (_stack(model, side, architecture, reasons) for side in SIDES)
    for key in ("hidden_size", "mlp_activation_fn", "norm_eps"):
        if encoder.values[key] != decoder.values[key]:
            reasons.append(f"its encoder and decoder differ in {key}")
    section = model.get("embeddings")
    embeddings = Options(section if isinstance(section, dict) else {}, reasons)
    positions = embeddings.choose(
        "position_encoding_type", POSITIONS, next(iter(opennmt.SINUSOIDS))
    )
    embeddings.require({"embedding_type": ("standard",)})
    if embeddings.values.get("normalize"):
        reasons.append("it multiplies the sum of token vectors and positions (normalize)")
    shift = embeddings.count("position_shift", 0) if embeddings.values.get("position_shift") else 0
    options: dict[str, Any] = {
        "activation": encoder.choose("mlp_activation_fn", ACTIVATIONS, "relu"),
        "norm": "pre",
        "norm_epsilon": encoder.number("norm_eps", 1e-5),
        "source_eos": False,
        "scale_embeddings": positions != opennmt.LEARNED,
        **_sizes(encoder, decoder),
    }
    is_shared, is_tied = (
        bool(model.get(f"share_{name}", False)) for name in ("embeddings", "decoder_embeddings")
    )
    has_bias = bool(model.get("generator_bias", True))
    refuse(reasons)
    return opennmt.Configuration(options, positions, is_shared, is_tied, has_bias, shift)


def _stack(model: Mapping[str, Any], side: str, architecture: str, reasons: list[str]) -> Options:
    """Return the options of a side: those of its section, else of the model, else the defaults."""
    section = model.get(side)
    if not isinstance(section, dict):
        section = {}
    kind = section.get(f"{side}_type", "transformer" if architecture == "transformer" else None)
    if kind != "transformer":
        reasons.append(f"its {side} is {shown(kind)}, not transformer")
    stack = Options({**DEFAULTS, **model, **section}, reasons, f"its {side} has {{}} {{}}")
    stack.require(PLAIN)
    if stack.values.get("heads_kv") not in (None, stack.values["heads"]):
        stack.refuse("heads_kv", ", not as many as heads")
    return stack


def _sizes(encoder: Options, decoder: Options) -> dict[str, int]:
    """Return the sizes, with the width of a head if it is not d_model / num_heads."""
    sides = (encoder, decoder)
    is_divided = any(side.values["head_dim"] is None for side in sides)
    sizes = read_sizes(SIZES, encoder, decoder, is_divided=is_divided)
    all_heads = (sizes["num_heads"], sizes.get("decoder_num_heads", sizes["num_heads"]))
    widths = []
    for side, heads in zip(sides, all_heads, strict=True):
        has_own = side.values["head_dim"] is not None
        widths.append(side.count("head_dim") if has_own else sizes["d_model"] // heads)
        if side.values.get("attn_scaling") not in (None, widths[-1]):
            side.refuse("attn_scaling")
    if any(w * heads != sizes["d_model"] for w, heads in zip(widths, all_heads, strict=True)):
        sizes |= {"d_k": widths[0], "d_v": widths[0]}
        if widths[0] != widths[1]:
            encoder.reasons.append("its encoder and decoder differ in head_dim")
    return sizes


WEIGHTS, VOCABULARY = "model.00.safetensors", "vocab.json"
PARTS = "model.*.safetensors"
FOLDER = "${MODEL_PATH}/"  # before the names of files in config.json
# Unless vocab.json has others.
SPECIALS = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
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
        found = read_parts(sorted(folder.glob(PARTS)))
        tensors = {name: found[name] for name in found if not UNUSED.fullmatch(name)}
        models = read_models(files.models() or _own_sentencepiece(folder, config))
        return opennmt.make_model(tensors, NAMES, configuration, _read_vocabularies(folder), models)


def _read_vocabularies(folder: Path) -> opennmt.Tokens:
    """Return the tokens. Raises ValueError if the model lacks a mark."""
    content = read_config(folder, VOCABULARY)
    source, target = (_texts(folder, content, key) for key in LISTS)
    specials = content.get("specials")
    if not isinstance(specials, dict):
        specials = {}
    marks = {key: specials.get(key, default) for key, default in SPECIALS.items()}
    if marks["bos_token"] is None:  # which only a decoder that starts with the end needs
        marks["bos_token"] = SPECIALS["bos_token"]
    marks["decoder_start_token"] = content.get("decoder_start_token", SPECIALS["bos_token"])
    wrong = [key for key, mark in marks.items() if not isinstance(mark, str) or not mark]
    if wrong:
        raise ValueError(f"{VOCABULARY} names no token as {', '.join(wrong)}")
    unknown, other_start, end, start = marks.values()
    return opennmt.Tokens(source, target, unknown, end, start, other_start)


def _texts(folder: Path, content: Mapping[str, Any], key: str) -> list[str]:
    try:
        return list_of_texts(content.get(key))
    except ValueError:
        path = folder / VOCABULARY
        raise DamagedError(f"{path} is damaged: {key} is not a list of texts.") from None


def _own_sentencepiece(folder: Path, config: Mapping[str, Any]) -> dict[Side, Path] | None:
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
            value = section.get(SUBWORD_MODELS["source"])
        if not isinstance(value, str) or not value.startswith(FOLDER):
            return None
        name = value.removeprefix(FOLDER)
        if Path(name).name != name:
            raise ValueError(f"its {key} {value!a} is not a file in its folder")
        paths[side] = folder / name
    return paths if all(path.is_file() for path in paths.values()) else None


def _transforms(config: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the names of all steps between text and pieces."""
    corpora = config.get("data")
    for section in [config, *(corpora.values() if isinstance(corpora, dict) else ())]:
        names = section.get("transforms") if isinstance(section, dict) else None
        yield from names if isinstance(names, list) else ()


def _names_of_stack(side: str) -> StackNames:
    memory = opennmt.names_of_attention("context_attn", "precontext_layernorm")
    return StackNames(
        f"{side}.transformer_layers.{{}}.",
        parts_of_layer(
            opennmt.names_of_attention("self_attn", "input_layernorm"),
            memory if side == "decoder" else [],
            *("mlp.gate_up_proj.{}", "mlp.down_proj.{}", "post_attention_layernorm.{}"),
        ),
        last_norm=dotted(f"{side}.layer_norm"),
    )


NAMES = opennmt.Names(
    embeddings=[f"{name}_emb.embeddings.weight" for name in LISTS],
    sinusoids=[f"{name}_emb.pe.pe" for name in LISTS],
    learned=[f"{name}_emb.pe.weight" for name in LISTS],
    output=dotted("generator"),
    stacks={side: _names_of_stack(side) for side in SIDES},
)
# Only layers without attention to an encoder multiply by this number.
UNUSED = re.compile(r"decoder\.transformer_layers\.\d+\.layer_scalar")
