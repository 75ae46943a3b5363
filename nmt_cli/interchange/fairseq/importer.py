"""Imports a Transformer of fairseq, from a checkpoint and two dictionaries.

Its sinusoids have the sines of all frequencies before the cosines, where ours have them in turn.
``<pad>`` stays in the vocabulary, because it has a part in the softmax.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nmt_cli.corpus.tokenizers.normalization import Side
from nmt_cli.interchange.fairseq.files import (
    MARKS,
    Checkpoint,
    find_checkpoint,
    read_checkpoint,
    read_vocabularies,
)
from nmt_cli.interchange.files import (
    NO_FILES,
    SIDES,
    Array,
    TextFiles,
    activation,
    count,
    of_sides,
    refuse,
    refusing,
    shown,
)
from nmt_cli.interchange.imported_model import ImportedModel
from nmt_cli.interchange.tensor_names import (
    StackNames,
    dotted,
    names_of_layer,
    order_from_sines_first,
)
from nmt_cli.interchange.vocabularies import read_named_models
from nmt_cli.interchange.weights_taken import TensorsTaken, WeightsTaken

NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}
OLD_NORM = re.compile(r"((encoder|decoder)\.layers\.\d+)\.layer_norms\.([0-2])\.(weight|bias)")
JOINED = re.compile(r"(.*_attn)\.in_proj_(weight|bias)")  # queries, keys, values
OLD_OUTPUT, OUTPUT = "decoder.embed_out", "decoder.output_projection.weight"


def with_new_names(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Return the tensors with new names; an old one stays if there is a new one beside it."""
    found: dict[str, Array] = {}
    for name, array in tensors.items():
        renamed = _renamed(name, array)
        found |= {name: array} if tensors.keys() & renamed.keys() else renamed
    return found


def _renamed(name: str, array: Array) -> dict[str, Array]:
    """Return a tensor with its new name, or its three parts."""
    norm, joined = OLD_NORM.fullmatch(name), JOINED.fullmatch(name)
    if name == OLD_OUTPUT:
        return {OUTPUT: array}
    if norm is not None and int(norm[3]) < len(NORMS[norm[2]]):
        return {f"{norm[1]}.{NORMS[norm[2]][int(norm[3])]}.{norm[4]}": array}
    if joined is not None and array.ndim and len(array) % len("qkv") == 0:
        parts = np.split(array, len("qkv"))
        return {
            f"{joined[1]}.{q}_proj.{joined[2]}": part for q, part in zip("qkv", parts, strict=True)
        }
    return {name: array}


NAMES = StackNames(
    names_of_layer,
    last_norm=lambda side: dotted(f"{side}.layer_norm"),
    embedding_norm=lambda side: dotted(f"{side}.layernorm_embedding"),
)
EMBEDDINGS: dict[Side, str] = {
    "source": "encoder.embed_tokens.weight",
    "target": "decoder.embed_tokens.weight",
}
POSITIONS = [f"{side}.embed_positions.weight" for side in SIDES]
FIRST_POSITION = MARKS.index("<pad>") + 1  # earlier rows of tables belong to padding
SINUSOIDS = {"sinusoid_frequencies": "tensor2tensor", "first_position": FIRST_POSITION}
DERIVED = ("_float_tensor", "weights")  # of the sinusoids, which fairseq computes anew
FIRST_VERSION = 1.0  # of checkpoints without one
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


def import_fairseq(path: Path, files: TextFiles = NO_FILES) -> ImportedModel:
    """Return the model of the checkpoint at ``path``, a file or a folder that holds one.

    Raises UserError with all reasons if it cannot be imported, or if a file cannot be
    read, and DamagedError if a file is damaged.
    """
    checkpoint = read_checkpoint(find_checkpoint(path))
    with refusing(checkpoint.path):
        return _model(checkpoint, files)


def _model(checkpoint: Checkpoint, files: TextFiles) -> ImportedModel:
    """Return the model. Raises ValueError with all reasons if it cannot be represented."""
    tensors = TensorsTaken(with_new_names(checkpoint.tensors))
    versions = {side: tensors.take_number(f"{side}.version", FIRST_VERSION) for side in SIDES}
    config = _read_configuration(checkpoint.options, checkpoint.task, versions)
    models = read_named_models(files)
    vocabularies = read_vocabularies(
        checkpoint.path, files, config.languages, tensors.reasons, are_words=models is None
    )
    order = None if config.is_learned else order_from_sines_first(config.options["d_model"])
    taken = WeightsTaken(tensors, config.options, order)
    if config.is_shared and vocabularies["source"] != vocabularies["target"]:
        tensors.reasons.append("its sides share their embeddings, but not the vocabulary")
    rows = [_rows(tensors, side, len(each.rows)) for side, each in vocabularies.items()]
    names = [*EMBEDDINGS.values(), OUTPUT]
    matrices = taken.take_matrices(names, rows, is_shared=config.is_shared, is_tied=config.is_tied)
    taken.put_pieces(vocabularies, matrices)
    _take_positions(taken, is_learned=config.is_learned)
    for side in SIDES:
        taken.take_stack(side, NAMES)
    return taken.model(vocabularies, models).with_languages(*config.languages)


def _rows(tensors: TensorsTaken, side: Side, pieces: int) -> int:
    """Return the rows of a side's embeddings; add a reason if they are not its pieces."""
    name = EMBEDDINGS[side]
    rows = tensors.length(name)
    if rows in {0, pieces}:
        return pieces
    text = f"the {side} vocabulary has {pieces:,} pieces with its {len(MARKS)} marks"
    tensors.reasons.append(f"{text}, {name} {rows:,} rows")
    return rows


def _take_positions(taken: WeightsTaken, *, is_learned: bool) -> None:
    """Take the tables of learned positions; what sinusoids leave in a checkpoint is dropped."""
    if is_learned:
        count = taken.tensors.length(POSITIONS[0])
        tables = [taken.tensors.take(name, count, taken.d_model) for name in POSITIONS]
        taken.put_learned_positions([table[FIRST_POSITION:] for table in tables])
        return
    taken.options |= SINUSOIDS
    for side in SIDES:
        for name in DERIVED:
            taken.tensors.take_if_there(f"{side}.embed_positions.{name}")


class Configuration(NamedTuple):
    """The architecture of a model, from its options."""

    options: dict[str, Any]  # of our architecture
    languages: tuple[str | None, str | None]
    is_shared: bool  # one matrix is that of source, target and softmax
    is_tied: bool  # the matrix of the softmax is the target's
    is_learned: bool  # positions are


def _read_configuration(
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
