"""The vocabularies of a model of CTranslate2, in the order that ours have: three marks first."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from nmt_cli.corpus.normalization import Side
from nmt_cli.corpus.sentencepiece_tokenizer import read_usable_model
from nmt_cli.corpus.whitespace_tokenizer import CONTROL
from nmt_cli.interchange.ctranslate2_folder import read_vocabulary
from nmt_cli.interchange.imported_model import problems_of_pieces
from nmt_cli.interchange.tensors_taken import TensorsTaken

PEGASUS_MODEL = "spiece.model"
SENTENCEPIECE_FILES: tuple[dict[Side, str], ...] = (
    {"source": "source.spm", "target": "target.spm"},
    {"source": "sentencepiece.model", "target": "sentencepiece.model"},
    {"source": PEGASUS_MODEL, "target": PEGASUS_MODEL},
)


class Vocabulary(NamedTuple):
    """The pieces of one side."""

    pieces: list[str]
    rows: list[int]  # of the pieces in the model's matrices; -1: a mark that the model lacks


class Marks(NamedTuple):
    """The model's names of our three marks, and what its decoder starts with."""

    tokens: tuple[str, str, str]
    decoder_start: str  # as in model.decoder_start


def marks_of(config: Mapping[str, Any], tensors: TensorsTaken) -> Marks:
    """Return the marks; the token that the decoder starts with is our mark of the start."""
    unk, bos, eos = (
        str(config.get(f"{name}_token", default))
        for name, default in zip(("unk", "bos", "eos"), CONTROL, strict=True)
    )
    if tensors.take_number("decoder/start_from_zero_embedding", 0.0):
        return Marks((unk, bos, eos), "zeros")
    start = config.get("decoder_start_token", bos)
    if start == eos:
        return Marks((unk, bos, eos), "eos")
    if not isinstance(start, str):
        tensors.reasons.append("its decoder starts with a token that the caller chooses")
        start = bos
    return Marks((unk, start, eos), "bos")


def read_vocabularies(
    folder: Path, marks: Marks, sizes: Mapping[Side, int], reasons: list[str]
) -> dict[Side, Vocabulary]:
    """Return the vocabulary of each side; ``sizes`` are the rows of its matrix.

    What speaks against them is added to ``reasons``.
    """
    shared = read_vocabulary(folder, "shared")
    are_words, found = sentencepiece_files(folder) is None, {}
    single = [name for name in SENTENCEPIECE_FILES[0].values() if (folder / name).is_file()]
    if len(single) == 1:
        reasons.append(f"it has {single[0]}, but not both source.spm and target.spm")
    for side, size in sizes.items():
        tokens = shared if shared is not None else read_vocabulary(folder, side)
        if tokens is None:
            reasons.append(f"it has no {side} vocabulary")
            continue
        if marks.tokens[0] not in tokens:
            tokens = [*tokens, marks.tokens[0]]  # as CTranslate2 does
        places = {token: place for place, token in enumerate(tokens)}
        if len(places) < len(tokens):
            reasons.append(f"the {side} vocabulary holds a token twice")
        elif len(tokens) != size:
            count = f"{len(tokens):,} tokens, its matrix {size:,} rows"
            reasons.append(f"the {side} vocabulary has {count}")
        missing = [mark for mark in marks.tokens if mark not in places]
        if missing and (side == "target" or shared is not None):
            reasons.append(f"the {side} vocabulary has no {', '.join(missing)}")
        others = [place for token, place in places.items() if token not in marks.tokens]
        pieces = [*CONTROL, *(tokens[place] for place in others)]
        reasons += problems_of_pieces(pieces, side, are_words=are_words)
        found[side] = Vocabulary(
            pieces, [*(places.get(mark, -1) for mark in marks.tokens), *others]
        )
    return found


def sentencepiece_files(folder: Path) -> dict[Side, Path] | None:
    """Return the SentencePiece model of each side; None if the folder has none."""
    for names in SENTENCEPIECE_FILES:
        paths = {side: folder / name for side, name in names.items()}
        if all(path.is_file() for path in paths.values()):
            return paths
    return None


def read_sentencepiece(folder: Path) -> dict[Side, bytes] | None:
    """Return the SentencePiece models, after trying them out; None if the folder has none."""
    paths = sentencepiece_files(folder)
    if paths is None:
        return None
    return {side: read_usable_model(path) for side, path in paths.items()}
