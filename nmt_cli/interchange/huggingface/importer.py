"""Imports Hugging Face's MarianMTModel (OPUS-MT) and PegasusForConditionalGeneration.

Its dimensions have the sines of all frequencies before the cosines, where ours have them in turn.
Biases that are all zero, which its classes always have, are left out.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nmt_cli.corpus.tokenizers.mapped_sentencepiece import END, START, TAG, UNKNOWN, read_ids
from nmt_cli.corpus.tokenizers.normalization import Side
from nmt_cli.corpus.tokenizers.sentencepiece_tokenizer import load_processor
from nmt_cli.files.file_names import CONFIG, WEIGHTS
from nmt_cli.interchange import files as stored
from nmt_cli.interchange.files import NO_FILES, Array, TextFiles
from nmt_cli.interchange.huggingface import exporter
from nmt_cli.interchange.imported_model import ImportedModel
from nmt_cli.interchange.options import Options, read_sizes, refuse, refusing, shown
from nmt_cli.interchange.pickled_tensors import read_pickled_tensors
from nmt_cli.interchange.tensor_names import known_sinusoids, order_from_sines_first
from nmt_cli.interchange.vocabularies import (
    PEGASUS_MODEL,
    Vocabulary,
    models_in,
    read_models,
    rename,
)
from nmt_cli.interchange.weights_taken import TensorsTaken, WeightsTaken
from nmt_cli.messages import logs
from nmt_cli.messages.errors import DamagedError, UserError

PICKLED = "pytorch_model.bin"
PART = re.compile(r"[A-Za-z][\w.-]{0,200}", re.ASCII)  # the name of a file beside its index
ROUNDING = 5e-4  # of sinusoids that are stored in half precision
TYPES = {"marian": "post", "pegasus": "pre"}  # and the place of their norms
ACTIVATIONS = {
    **{"relu": "relu", "silu": "swish", "swish": "swish", "gelu": "gelu", "gelu_python": "gelu"},
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), "gelu_tanh"),
}
SIZES = {
    "d_model": "d_model",
    "num_layers": "{}_layers",
    "num_heads": "{}_attention_heads",
    "d_ff": "{}_ffn_dim",
}
# What transformers assumes if config.json lacks a key.
DEFAULTS: dict[str, dict[str, Any]] = {
    "marian": {"eos_token_id": 0, "decoder_start_token_id": 58_100},
    "pegasus": {"eos_token_id": 1, "decoder_start_token_id": 0},
}
# Keys that other programs read and these classes do not, and the classes for which they are true.
IMPLIED = {"normalize_embedding": (), "normalize_before": ("pegasus",),
           "add_final_layer_norm": ("pegasus",)}  # fmt: skip


def import_huggingface(folder: Path, files: TextFiles = NO_FILES) -> ImportedModel:
    """Return the model of ``folder``.

    Raises UserError with all reasons if it cannot be imported, or if a file cannot be
    read, and DamagedError if a file is damaged.
    """
    files.refuse_any("Hugging Face")
    if not (folder / CONFIG).is_file():
        raise UserError(f"{folder} has no {CONFIG}; give the folder of a model of Hugging Face.")
    with refusing(folder):
        config = _read_configuration(stored.read_config(folder))
        tensors = TensorsTaken(read_tensors(folder))
        models = read_models(models_in(folder))
        found = read_vocabularies(folder, models, config.eos_id, config.sizes, tensors.reasons)
        if models is None:
            tensors.reasons.append(f"it has no source.spm and target.spm, and no {PEGASUS_MODEL}")
        taken = WeightsTaken(
            tensors, config.options, order_from_sines_first(config.options["d_model"])
        )
        vocabularies = _take_pieces(taken, config, found)
        _take_positions(taken)
        for side, names in exporter.NAMES.items():
            taken.take_stack(side, names)
        return taken.model(vocabularies, models).with_languages(*found.languages)


def read_tensors(folder: Path) -> dict[str, Array]:
    """Return the weights of ``folder`` in fp32, from one file or from the parts in an index.

    Raises UserError if a file cannot be read or holds other things, DamagedError if it is damaged.
    """
    for name, read in ((WEIGHTS, stored.read_safetensors), (PICKLED, read_pickled_tensors)):
        path = folder / name
        if path.is_file():
            return read(path)
        index = folder / f"{name}.index.json"
        if index.is_file():
            return stored.read_parts(_parts(index), read)
    raise UserError(f"{folder} has no {WEIGHTS} and no {PICKLED}, which hold the weights.")


def _parts(index: Path) -> list[Path]:
    """Return the files that an index names, which stand beside it."""
    weights = stored.read_config(index.parent, index.name).get("weight_map")
    names = sorted(set(map(str, weights.values()))) if isinstance(weights, dict) else []
    if not names or not all(map(PART.fullmatch, names)):
        raise DamagedError(f"{index} is damaged: its weight_map does not name files beside it.")
    for name in names:
        if not (index.parent / name).is_file():
            raise UserError(
                f"{index.parent / name} not found; it is one of {len(names):,} parts of the "
                "weights, get it too."
            )
    return [index.parent / name for name in names]


NAMED = 3  # tokens in a message
FILES: dict[Side, str] = {"source": "vocab.json", "target": "target_vocab.json"}
# What Pegasus has behind <pad> and </s>, and before the other pieces of its SentencePiece model.
MASKS = ("<mask_1>", "<mask_2>", *(f"<unk_{number}>" for number in range(2, 103)))
MARKS = {"unk": UNKNOWN, "eos": END, "pad": "<pad>"}  # unless tokenizer_config.json has others


class Vocabularies(NamedTuple):
    """The pieces of both sides, with our names of unknown pieces and of the end."""

    pieces: dict[Side, dict[int, str]]  # by their rows of the matrices; other rows are padding
    pad: str
    are_separate: bool
    languages: tuple[Any, Any]


def read_vocabularies(
    folder: Path,
    models: Mapping[Side, bytes] | None,
    eos_id: int,
    sizes: Mapping[Side, int],
    reasons: list[str],
) -> Vocabularies:
    """Return the vocabularies; ``sizes`` are the rows of their matrices.

    Without a file of their own, they are those of the SentencePiece model in ``models``. The
    reasons against them are added to ``reasons``. Raises UserError if a file cannot be read, and
    DamagedError if it is no vocabulary.
    """
    config = stored.read_config(folder, "tokenizer_config.json")
    names = {key: _name(config.get(f"{key}_token"), name) for key, name in MARKS.items()}
    are_separate = bool(config.get("separate_vocabs", False))
    model = None if (folder / FILES["source"]).exists() else (models or {}).get("source")
    if model is not None and config.get("offset", len(MASKS)) != len(MASKS):
        reasons.append(f"its tokenizer has the offset {config['offset']}, not {len(MASKS)}")
    languages = config.get("source_lang"), config.get("target_lang")
    found = Vocabularies({}, names["pad"], are_separate, languages)
    added = _added_tokens(folder, config)
    for side, size in sizes.items():
        if model is None:
            file = FILES[side if are_separate else "source"]
            ids = read_ids(folder / file)
        else:
            file, ids = PEGASUS_MODEL, _ids_of_pegasus(model, names)
        pieces = {ids[piece]: piece for piece in sorted(ids, key=ids.__getitem__)}
        if list(pieces) != list(range(len(ids))):
            reasons.append(f"the numbers in {file} are not 0 to {len(ids) - 1:,}, each once")
        elif len(pieces) > size:
            reasons.append(f"{file} has {len(pieces):,} pieces, its matrix {size:,} rows")
        elif pieces.get(eos_id) != names["eos"]:
            reasons.append(f"eos_token_id is {eos_id:,}, which is not {names['eos']} in {file}")
        elif names["unk"] not in ids:
            reasons.append(f"{file} has no {names['unk']}")
        else:
            rename(pieces, ids[names["unk"]], UNKNOWN, reasons)
            rename(pieces, eos_id, END, reasons)
            if side == "source" or not are_separate:  # added tokens have numbers of the source
                pieces |= {
                    row: token
                    for row, token in added.items()
                    if len(ids) <= row < size and token not in ids
                }
        found.pieces[side] = pieces
        if side == "source":
            _warn_of_added(list(pieces.values())[len(ids) :], names["pad"])
    return found


def _warn_of_added(tokens: Iterable[str], pad: str) -> None:
    """Warn of tokens that the other program cuts out of text anywhere, and SentencePiece does not.

    Tags of the target language are in front of the text, where they are known here as well.
    """
    named = [shown(token) for token in tokens if token != pad and not TAG.fullmatch(token)]
    if named:
        more = ", ..." if len(named) > NAMED else ""
        logs.warning(
            f"its tokenizer has added tokens ({', '.join(named[:NAMED])}{more}), which are not cut "
            "out of text here; the model may write them, but not read them."
        )


def _added_tokens(folder: Path, config: Mapping[str, Any]) -> dict[int, str]:
    """Return the tokens that users added to the tokenizer, by their rows and in this order."""
    listed = stored.read_config(folder, "added_tokens.json")
    found = {row: token for token, row in listed.items() if type(row) is int}
    newer = config.get("added_tokens_decoder")
    for row, token in newer.items() if isinstance(newer, dict) else ():
        if re.fullmatch(r"[0-9]{1,8}", row):
            found[int(row)] = _name(token, "")
    # Half a character is not printable.
    by_token = {token: row for row, token in found.items() if token and token.isprintable()}
    return {row: token for token, row in sorted(by_token.items(), key=lambda each: each[1])}


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
    pieces.setdefault(start_id, vocabularies.pad)  # if the tokenizer does not know it
    if pieces[start_id] not in {vocabularies.pad, START}:
        reasons.append(f"its decoder starts with {pieces[start_id]}, which texts may have")
        return "bos"
    rename(pieces, start_id, START, reasons)
    if not vocabularies.are_separate:
        vocabularies.pieces["source"] = pieces
    return "bos"


def _name(value: Any, default: str) -> str:
    """Return the name of a mark; older files hold it in an object."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else default


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
    single = {
        key: value[0] if isinstance(value, list) and len(value) == 1 else value
        for key, value in config.items()
    }
    theirs = Options({**DEFAULTS[kind], **single}, [])
    for key, classes in IMPLIED.items():
        if config.get(key, kind in classes) != (kind in classes):
            theirs.refuse(key, f", which the class {kind} does not compute")
    options: dict[str, Any] = {
        "norm": TYPES[kind],
        "norm_epsilon": exporter.EPSILON,
        "activation": theirs.choose("activation_function", ACTIVATIONS, "gelu"),
        "scale_embeddings": bool(config.get("scale_embedding", False)),
        **read_sizes(SIZES, theirs, theirs, is_divided=True),
    }
    if config.get("quantization_config"):
        theirs.reasons.append("its weights are quantized")
    is_tied = bool(config.get("tie_word_embeddings", True))
    is_shared = is_tied
    size = of_target = theirs.count("vocab_size")
    if kind == "marian":
        is_shared = bool(config.get("share_encoder_decoder_embeddings", True))
        if not is_shared and config.get("decoder_vocab_size") is not None:
            of_target = theirs.count("decoder_vocab_size")
    eos_id, start_id = (theirs.count(f"{name}_token_id", 0) for name in ("eos", "decoder_start"))
    if start_id >= of_target:
        theirs.reasons.append(f"its decoder_start_token_id {start_id:,} is no piece")
    refuse(theirs.reasons)
    return Configuration(
        options, {"source": size, "target": of_target}, eos_id, start_id, is_shared, is_tied
    )


def _take_pieces(
    taken: WeightsTaken, config: Configuration, found: Vocabularies
) -> dict[Side, Vocabulary]:
    """Take the embeddings, the matrix of the softmax and its bias; return the vocabularies.

    If the decoder starts with zeros, their row is no piece, and they and the vocabularies lose it.
    """
    tensors, size = taken.tensors, config.sizes["target"]
    matrices = taken.take_matrices(
        [*exporter.EMBEDDINGS, exporter.OUTPUT],
        list(config.sizes.values()),
        is_shared=config.is_shared,
        is_tied=config.is_tied and not _has_own_output(tensors, is_shared=config.is_shared),
        of_both=[exporter.SHARED] if config.is_shared else [],
    )
    tensors.take_if_there(exporter.SHARED)  # which these classes do not use if it is not shared
    stored, bias = tensors.get(exporter.BIAS), None
    if stored is not None:  # for padded rows transformers may have left out its numbers
        last = max(*found.pieces["target"], config.start_id)
        has_all = stored.ndim == 2 and last < stored.shape[1] <= size
        bias = tensors.take(exporter.BIAS, 1, stored.shape[1] if has_all else size)[0]
    if not tensors.is_wrong:
        start = config.start_id
        if start != config.eos_id and not matrices[1][start].any():
            taken.options["decoder_start"] = "zeros"
            for side, pieces in found.pieces.items():
                if side == "target" or not found.are_separate:
                    pieces.pop(start, None)
        else:
            taken.options["decoder_start"] = start_of_decoder(
                found, start, config.eos_id, tensors.reasons
            )
        _report_padding(found, config, has_zeros=taken.options["decoder_start"] == "zeros")
    vocabularies = {
        side: Vocabulary(list(pieces.values()), list(pieces))
        for side, pieces in found.pieces.items()
    }
    taken.put_pieces(vocabularies, matrices, bias)
    return vocabularies


def _report_padding(vocabularies: Vocabularies, config: Configuration, *, has_zeros: bool) -> None:
    """Warn of rows of a matrix that are neither a piece nor the zeros that the decoder starts with.

    They fill the matrix up to a round number, or the vocabulary is that of another model.
    """
    zeros = {config.start_id} if has_zeros else set()
    found = [
        (size, len({*range(size)} - {*vocabularies.pieces[side]} - zeros))
        for side, size in config.sizes.items()
    ]
    for size, left in dict.fromkeys(found):  # both sides may have the same
        if left:
            logs.warning(
                f"a matrix has {size:,} rows, one for each token, but the tokenizer has no token "
                f"for {left:,} of them; these are left out."
            )


def _has_own_output(tensors: TensorsTaken, *, is_shared: bool) -> bool:
    """Return whether the matrix of the softmax is none of the embeddings, whatever the options say.

    Models of OPUS-MT-tc-big are so, and transformers 5 then takes both as they are.
    """
    names = ([exporter.SHARED] if is_shared else []) + exporter.EMBEDDINGS[::-1]
    reference = next((tensors.get(name) for name in names if tensors.has(name)), None)
    output = tensors.get(exporter.OUTPUT)
    return reference is not None and output is not None and not np.array_equal(output, reference)


def _take_positions(taken: WeightsTaken) -> None:
    """Take the tables of positions, if there are any; those that are no sinusoids are learned."""
    tensors = taken.tensors
    tables = taken.take_tables([name for name in exporter.POSITIONS if tensors.has(name)])
    if tensors.is_wrong:
        return
    found = known_sinusoids(tables, ROUNDING)  # without tables, they are the paper's
    if found is not None:
        taken.options |= found
    elif len(tables) < len(exporter.POSITIONS):
        tensors.reasons.append("its sides have unlike positions")
    else:
        taken.put_learned_positions(tables)
