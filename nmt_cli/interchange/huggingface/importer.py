"""Imports Hugging Face's MarianMTModel (OPUS-MT) and PegasusForConditionalGeneration.

Its dimensions have the sines of all frequencies before the cosines, where ours have them in turn.
Biases that are all zero, which its classes always have, are left out.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nmt_cli.corpus.tokenizers.mapped_sentencepiece import END, START, UNKNOWN, read_ids
from nmt_cli.corpus.tokenizers.normalization import Side
from nmt_cli.corpus.tokenizers.sentencepiece_tokenizer import load_processor
from nmt_cli.files.file_names import CONFIG, WEIGHTS
from nmt_cli.interchange.files import (
    LARGEST,
    NO_FILES,
    SIDES,
    Array,
    TextFiles,
    activation,
    as_fp32,
    of_sides,
    read_config,
    read_safetensors,
    refuse,
    refusing,
    shown,
)
from nmt_cli.interchange.huggingface.exporter import (
    BIAS,
    EMBEDDINGS,
    EPSILON,
    NAMES,
    OUTPUT,
    POSITIONS,
    SHARED,
)
from nmt_cli.interchange.imported_model import ImportedModel
from nmt_cli.interchange.pickled_tensors import read_pickled_tensors
from nmt_cli.interchange.tensor_names import known_sinusoids, order_from_sines_first
from nmt_cli.interchange.vocabularies import PEGASUS_MODEL, Vocabulary, read_sentencepiece, rename
from nmt_cli.interchange.weights_taken import TensorsTaken, WeightsTaken
from nmt_cli.messages.errors import UserError

PICKLED = "pytorch_model.bin"
ROUNDING = 5e-4  # of sinusoids that are stored in half precision
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


FILES: dict[Side, str] = {"source": "vocab.json", "target": "target_vocab.json"}
# What Pegasus has behind <pad> and </s>, and before the other pieces of its SentencePiece model.
MASKS = ("<mask_1>", "<mask_2>", *(f"<unk_{number}>" for number in range(2, 103)))
MARKS = {"unk": UNKNOWN, "eos": END, "pad": "<pad>"}  # unless tokenizer_config.json has others


class Vocabularies(NamedTuple):
    """The pieces of both sides by id, with our names of unknown pieces and of the end."""

    pieces: dict[Side, list[str]]
    pad: str
    are_separate: bool


def read_vocabularies(
    folder: Path,
    models: Mapping[Side, bytes] | None,
    eos_id: int,
    sizes: Mapping[Side, int],
    reasons: list[str],
) -> Vocabularies:
    """Return the vocabularies; ``sizes`` are the rows of their matrices.

    Without a file of their own, they are those of the SentencePiece model in ``models``. The
    reasons against them are added to ``reasons``. Raises as ``read_ids`` does.
    """
    config = read_config(folder, "tokenizer_config.json")
    names = {key: _name(config.get(f"{key}_token"), name) for key, name in MARKS.items()}
    are_separate = bool(config.get("separate_vocabs", False))
    model = None if (folder / FILES["source"]).exists() else (models or {}).get("source")
    if model is not None and config.get("offset", len(MASKS)) != len(MASKS):
        reasons.append(f"its tokenizer has the offset {config['offset']}, not {len(MASKS)}")
    found: dict[Side, list[str]] = {}
    for side, size in sizes.items():
        file = FILES[side if are_separate else "source"] if model is None else PEGASUS_MODEL
        ids = read_ids(folder / file) if model is None else _ids_of_pegasus(model, names)
        pieces = sorted(ids, key=ids.__getitem__)
        if sorted(ids.values()) != list(range(len(ids))):
            reasons.append(f"the numbers in {file} are not 0 to {len(ids) - 1:,}, each once")
        elif len(pieces) != size:
            reasons.append(f"{file} has {len(pieces):,} pieces, its matrix {size:,} rows")
        elif not 0 <= eos_id < size or pieces[eos_id] != names["eos"]:
            reasons.append(f"eos_token_id is {eos_id:,}, which is not {names['eos']} in {file}")
        elif names["unk"] not in pieces:
            reasons.append(f"{file} has no {names['unk']}")
        else:
            rename(pieces, ids[names["unk"]], UNKNOWN, reasons)
            rename(pieces, eos_id, END, reasons)
        found[side] = pieces
    return Vocabularies(found, names["pad"], are_separate)


def _ids_of_pegasus(model: bytes, names: Mapping[str, str]) -> dict[str, int]:
    processor = load_processor(model, PEGASUS_MODEL)
    own = processor.id_to_piece(list(range(2, processor.get_piece_size())))
    pieces = (names["pad"], names["eos"], *MASKS, *own)
    return {piece: number for number, piece in enumerate(pieces)}


def start_of_decoder(
    vocabularies: Vocabularies, start_id: int, eos_id: int, reasons: list[str]
) -> str:
    """Return ``model.decoder_start`` of a decoder whose first vector is not zero."""
    pieces = vocabularies.pieces["target"]
    if start_id == eos_id:
        return "eos"
    if pieces[start_id] not in {vocabularies.pad, START}:
        reasons.append(f"its decoder starts with {pieces[start_id]}, which texts may have")
        return "bos"
    rename(pieces, start_id, START, reasons)
    if not vocabularies.are_separate:
        vocabularies.pieces["source"][:] = pieces
    return "bos"


def _name(value: Any, default: str) -> str:
    """Return the name of a mark; older files hold it in an object."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else default


def import_huggingface(folder: Path, files: TextFiles = NO_FILES) -> ImportedModel:
    """Return the model of ``folder``.

    Raises UserError with all reasons if it cannot be imported, or if a file cannot be
    read, and DamagedError if a file is damaged.
    """
    files.refuse_any("Hugging Face")
    if not (folder / CONFIG).is_file():
        raise UserError(f"{folder} has no {CONFIG}; give the folder of a model of Hugging Face.")
    with refusing(folder):
        config = _read_configuration(read_config(folder))
        tensors = TensorsTaken(read_tensors(folder))
        models = read_sentencepiece(folder)
        found = read_vocabularies(folder, models, config.eos_id, config.sizes, tensors.reasons)
        if models is None:
            tensors.reasons.append(f"it has no source.spm and target.spm, and no {PEGASUS_MODEL}")
        taken = WeightsTaken(
            tensors, config.options, order_from_sines_first(config.options["d_model"])
        )
        vocabularies = _take_pieces(taken, config, found)
        _take_positions(taken)
        for side in SIDES:
            taken.take_stack(side, NAMES)
        return taken.model(vocabularies, models)


def read_tensors(folder: Path) -> dict[str, Array]:
    """Return the weights of ``folder`` in fp32.

    Raises UserError if a file cannot be read or holds other things, DamagedError if it is damaged.
    """
    path = folder / WEIGHTS
    if path.is_file():
        return read_safetensors(path)
    path = folder / PICKLED
    if path.is_file():
        return as_fp32(read_pickled_tensors(path), path)
    raise UserError(f"{folder} has no {WEIGHTS} and no {PICKLED}, which hold the weights.")


class Configuration(NamedTuple):
    """The architecture of a model, from ``config.json``."""

    options: dict[str, Any]  # of our architecture
    sizes: dict[Side, int]  # rows of the embeddings
    eos_id: int
    start_id: int
    is_shared: bool  # both embeddings are one matrix
    is_tied: bool  # the matrix of the softmax is the target's


def _read_configuration(config: Mapping[str, Any]) -> Configuration:
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
    key = "activation_function"
    of_feed_forward = activation(config.get(key, "gelu"), ACTIVATIONS, key, reasons)
    if config.get("quantization_config"):
        reasons.append("its weights are quantized")
    counts = _Counts({**DEFAULTS[kind], **config}, reasons)
    d_model = counts.take("d_model")
    options: dict[str, Any] = {
        "norm": TYPES[kind],
        "norm_epsilon": EPSILON,
        "activation": of_feed_forward,
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
    refuse(reasons)
    return Configuration(
        options, {"source": size, "target": of_target}, eos_id, start_id, is_shared, is_tied
    )


def _sizes_of_layers(counts: "_Counts", d_model: int) -> dict[str, int]:
    found: dict[str, int] = {}
    names = {"num_layers": "layers", "d_ff": "ffn_dim", "num_heads": "attention_heads"}
    for ours, theirs in names.items():
        encoder, decoder = (counts.take(f"{side}_{theirs}") for side in SIDES)
        found |= of_sides(ours, encoder, decoder)
        if ours == "num_heads" and (d_model % encoder or d_model % decoder):
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


def _take_pieces(
    taken: WeightsTaken, config: Configuration, found: Vocabularies
) -> dict[Side, Vocabulary]:
    """Take the embeddings, the matrix of the softmax and its bias; return the vocabularies.

    If the decoder starts with zeros, their row is no piece, and they and the vocabularies lose it.
    """
    tensors, size = taken.tensors, config.sizes["target"]
    matrices = taken.take_matrices(
        [*EMBEDDINGS, OUTPUT],
        list(config.sizes.values()),
        is_shared=config.is_shared,
        is_tied=config.is_tied,
        of_both=[SHARED] if config.is_shared else [],
    )
    tensors.take_if_there(SHARED)  # which these classes do not use if it is not shared
    bias = tensors.take(BIAS, 1, size)[0] if tensors.has(BIAS) else None
    pieces: dict[Side, list[str]] = found.pieces
    rows = {side: list(range(len(each))) for side, each in pieces.items()}
    if not tensors.is_wrong:
        start = config.start_id
        if start != config.eos_id and not matrices[1][start].any():
            taken.options["decoder_start"] = "zeros"
            for side in pieces:
                if side == "target" or not found.are_separate:
                    del rows[side][start], pieces[side][start]
        else:
            taken.options["decoder_start"] = start_of_decoder(
                found, start, config.eos_id, tensors.reasons
            )
    vocabularies = {side: Vocabulary(each, rows[side]) for side, each in pieces.items()}
    taken.put_pieces(vocabularies, matrices, bias)
    return vocabularies


def _take_positions(taken: WeightsTaken) -> None:
    """Take the tables of positions, if there are any; those that are no sinusoids are learned."""
    tensors, tables = taken.tensors, []
    for name in filter(tensors.has, POSITIONS):
        table = tensors.take_if_there(name)
        if table is None or table.shape[1:] != (taken.d_model,) or not np.isfinite(table).all():
            tensors.reasons.append(f"{name} is not a vector for each position")
            return
        tables.append(taken.columns(table))
    found = known_sinusoids(tables, ROUNDING)  # without tables, they are the paper's
    if found is not None:
        taken.options |= found
    elif len({len(table) for table in tables}) > 1 or len(tables) < len(POSITIONS):
        tensors.reasons.append("its sides have unlike positions")
    else:
        taken.put_learned_positions(tables)
