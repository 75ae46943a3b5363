"""Imports a Transformer of Marian from its .npz file.

Its sinusoids have the sines of all frequencies before the cosines, where ours have them in turn.
Biases that are all zero are left out.
"""

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from nmt_cli.corpus.tokenizers.normalization import Side
from nmt_cli.interchange.files import NO_FILES, SIDES, Array, TextFiles, of_sides, refuse, refusing
from nmt_cli.interchange.imported_model import ImportedModel
from nmt_cli.interchange.marian.files import SETTINGS, find_files, read_archive, read_settings
from nmt_cli.interchange.marian.vocabularies import read_vocabularies
from nmt_cli.interchange.tensor_names import (
    AttentionNames,
    LayerNames,
    Pair,
    StackNames,
    order_from_sines_first,
)
from nmt_cli.interchange.vocabularies import Vocabulary
from nmt_cli.interchange.weights_taken import NAMED, TensorsTaken, WeightsTaken
from nmt_cli.messages import logs
from nmt_cli.messages.figures import counted
from nmt_cli.recipe.yaml_tree import shortened

SHARED, POSITIONS = "Wemb", "Wpos"
OUTPUT, OLD_OUTPUT = "decoder_ff_logit_out_Wt", "decoder_ff_logit_out_W"
BIAS = "decoder_ff_logit_out_b"
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


def import_marian(path: Path, files: TextFiles = NO_FILES) -> ImportedModel:
    """Return the model at ``path``, an .npz file or a folder with one.

    Raises UserError with all reasons if it cannot be imported, or if a file is missing or
    cannot be read, and DamagedError if a file is damaged.
    """
    found = find_files(path, files)
    archive = read_archive(found.weights)
    settings = read_settings(archive.settings, f"{found.weights}: {SETTINGS}")
    tensors = TensorsTaken(archive.tensors)
    with refusing(found.weights):
        _refuse_quantized(archive.quantized, tensors.reasons)
        config = _read_configuration(settings, tensors.reasons)
        source = _take_matrix(tensors, SHARED if config.is_shared else "encoder_Wemb", config)
        target = source if config.is_shared else _take_matrix(tensors, "decoder_Wemb", config)
        matrices: dict[Side, Array] = {"source": source, "target": target}
        sizes = {side: len(matrix) for side, matrix in matrices.items() if len(matrix)}
        vocabularies, models = read_vocabularies(found, sizes, tensors.reasons)
        has_sinusoids = config.options["positions"] == "sinusoidal" and not tensors.is_wrong
        order = order_from_sines_first(config.options["d_model"]) if has_sinusoids else None
        taken = WeightsTaken(tensors, config.options, order)
        if config.options["positions"] == "learned":
            taken.put_learned_positions([_take_matrix(tensors, POSITIONS, config)] * len(SIDES))
        for side in SIDES:
            taken.take_stack(side, NAMES[config.options["norm"]])
        _take_pieces(taken, config, matrices, vocabularies)
        model = taken.model(vocabularies, models)
    logs.info(f"Read {found}.")
    return model


class Configuration(NamedTuple):
    """The architecture of a model, from its settings."""

    options: dict[str, Any]  # of our architecture
    is_shared: bool  # both embeddings are one matrix
    is_tied: bool  # the matrix of the softmax is the target's
    has_output_bias: bool


def _read_configuration(settings: Mapping[str, Any], reasons: list[str]) -> Configuration:
    """Return the options; add to ``reasons`` what our architecture cannot represent.

    Raises ValueError with all reasons if it is no Transformer at all.
    """
    if settings.get("type") != "transformer":
        reasons.append(f"its type is {_shown(settings.get('type'))}, not transformer")
        refuse(reasons)
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
    of_decoder = found["d_ff"]
    if settings.get("transformer-decoder-dim-ffn") is not None:
        of_decoder = count("transformer-decoder-dim-ffn", 0) or of_decoder
    return (
        found
        | of_sides("num_layers", found["num_layers"], count("dec-depth"))
        | of_sides("d_ff", found["d_ff"], of_decoder)
    )


def _text(settings: Mapping[str, Any], key: str, default: str) -> str:
    value = settings.get(key)
    return default if value is None else value if isinstance(value, str) else _shown(value)


def _shown(value: Any) -> str:
    return shortened(value if isinstance(value, str) else str(value))


def _take_matrix(tensors: TensorsTaken, name: str, config: Configuration) -> Array:
    """Take a matrix with a row for each piece or position; their number is what the file has."""
    return tensors.take(name, tensors.length(name), config.options["d_model"])


def _take_pieces(
    taken: WeightsTaken,
    config: Configuration,
    matrices: Mapping[Side, Array],
    vocabularies: Mapping[Side, Vocabulary],
) -> None:
    """Take the matrix of the softmax and its bias, and put the pieces in our order."""
    tensors, output, bias = taken.tensors, matrices["target"], None
    if not len(output):  # it is missing; the others are not unknown then
        for name in (OUTPUT, OLD_OUTPUT, BIAS):
            tensors.take_if_there(name)
        return
    if not config.is_tied:
        name = OLD_OUTPUT if tensors.has(OLD_OUTPUT) else OUTPUT
        output = tensors.take(name, len(output), taken.d_model)
    if config.has_output_bias:
        bias = tensors.take(BIAS, len(output))
    taken.put_pieces(vocabularies, [matrices["source"], matrices["target"], output], bias)


def _refuse_quantized(types: Mapping[str, str], reasons: list[str]) -> None:
    if types:
        named = ", ".join(f"{name} ({kind})" for name, kind in list(types.items())[:NAMED])
        more = ", ..." if len(types) > NAMED else ""
        reasons.append(
            f"{counted(len(types), 'tensor')} not in fp16 or fp32, give the model from before it "
            f"was quantized: {named}{more}"
        )


def _layer(suffix: str, side: str, number: int) -> LayerNames:
    layer = f"{side}_l{number + 1}"

    def attention(name: str) -> AttentionNames:
        *inputs, output = (
            Pair(f"{layer}_{name}_W{part}", f"{layer}_{name}_b{part}") for part in "qkvo"
        )
        return AttentionNames(tuple(inputs), output, _norm(f"{layer}_{name}_Wo", suffix))

    return LayerNames(
        attention("self"),
        attention("context") if side == "decoder" else None,
        Pair(f"{layer}_ffn_W1", f"{layer}_ffn_b1"),
        Pair(f"{layer}_ffn_W2", f"{layer}_ffn_b2"),
        _norm(f"{layer}_ffn_ffn", suffix),
    )


def _norm(name: str, suffix: str = "") -> Pair:
    return Pair(f"{name}_ln_scale{suffix}", f"{name}_ln_bias{suffix}")


NAMES = {
    norm: StackNames(
        partial(_layer, suffix),
        last_norm=lambda side: _norm(f"{side}_top"),
        embedding_norm=lambda side: _norm(f"{side}_emb", "_pre"),
    )
    for norm, suffix in (("pre", "_pre"), ("post", ""))
}
