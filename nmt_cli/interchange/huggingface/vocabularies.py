"""The vocabularies of a model of Hugging Face, with our names of the marks."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from nmt_cli.corpus.tokenizers.mapped_sentencepiece import END, START, UNKNOWN, read_ids
from nmt_cli.corpus.tokenizers.normalization import Side
from nmt_cli.corpus.tokenizers.sentencepiece_tokenizer import load_processor
from nmt_cli.interchange.files import read_config
from nmt_cli.interchange.vocabularies import PEGASUS_MODEL, rename

FILES: dict[Side, str] = {"source": "vocab.json", "target": "target_vocab.json"}
# What Pegasus has behind <pad> and </s>, and before the other pieces of its SentencePiece model.
MASKS = ("<mask_1>", "<mask_2>", *(f"<unk_{number}>" for number in range(2, 103)))
NAMES = {"unk": UNKNOWN, "eos": END, "pad": "<pad>"}  # unless tokenizer_config.json has others


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
    names = {key: _name(config.get(f"{key}_token"), name) for key, name in NAMES.items()}
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
