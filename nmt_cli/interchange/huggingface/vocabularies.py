"""The vocabularies of a model of Hugging Face: pieces and added tokens, with their rows."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from nmt_cli.corpus.tokenizers.mapped_sentencepiece import END, START, TAG, UNKNOWN, read_ids
from nmt_cli.corpus.tokenizers.normalization import Side
from nmt_cli.corpus.tokenizers.sentencepiece_tokenizer import load_processor
from nmt_cli.interchange.files import read_config
from nmt_cli.interchange.options import shown
from nmt_cli.interchange.vocabularies import PEGASUS_MODEL, rename
from nmt_cli.messages import logs

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
    config = read_config(folder, "tokenizer_config.json")
    names = {key: _name(config.get(f"{key}_token"), name) for key, name in MARKS.items()}
    are_separate = bool(config.get("separate_vocabs", False))
    model = None if (folder / FILES["source"]).exists() else (models or {}).get("source")
    if model is not None and config.get("offset", len(MASKS)) != len(MASKS):
        reasons.append(f"its tokenizer has the offset {config['offset']}, not {len(MASKS)}")
    languages = config.get("source_lang"), config.get("target_lang")
    found = Vocabularies({}, names["pad"], are_separate, languages)
    added = _added_tokens(folder, config)
    for side, size in sizes.items():
        file = FILES[side if are_separate else "source"] if model is None else PEGASUS_MODEL
        ids = read_ids(folder / file) if model is None else _ids_of_pegasus(model, names)
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
    listed = read_config(folder, "added_tokens.json")
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
