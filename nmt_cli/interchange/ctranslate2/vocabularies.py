"""The vocabularies of a model of CTranslate2, in the order that ours have: three marks first."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nmt_cli.corpus.tokenizers.normalization import Side
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import CONTROL
from nmt_cli.interchange.ctranslate2.folder import read_vocabulary
from nmt_cli.interchange.tensors_taken import TensorsTaken
from nmt_cli.interchange.vocabularies import (
    SENTENCEPIECE_FILES,
    Vocabulary,
    problems_of_pieces,
    sentencepiece_files,
)


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

    The reasons against them are added to ``reasons``.
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
        missing = [mark for mark in _needed(marks, places) if mark not in places]
        if missing and (side == "target" or shared is not None):
            reasons.append(f"the {side} vocabulary has no {', '.join(missing)}")
        keeps_order = shared is not None and not are_words and not missing
        found[side] = _vocabulary(tokens, marks, keeps_order=keeps_order)
        others = list(found[side].pieces)
        for mark in CONTROL:
            if mark in others:
                others.remove(mark)
        reasons += problems_of_pieces([*CONTROL, *others], side, are_words=are_words)
    return found


def _needed(marks: Marks, places: Collection[str]) -> tuple[str, ...]:
    """Return the marks that a vocabulary needs: no ``<s>`` if the decoder starts without it."""
    unk, start, end = marks.tokens
    has_start = start in places and start not in (unk, end)
    return marks.tokens if has_start or marks.decoder_start == "bos" else (unk, end)


def _vocabulary(tokens: Sequence[str], marks: Marks, *, keeps_order: bool) -> Vocabulary:
    """Return the vocabulary of one side; it may keep its order if it needs no ``<s>``."""
    places = {token: place for place, token in enumerate(tokens)}
    needed = _needed(marks, places)
    if keeps_order and len(needed) < len(marks.tokens):
        names = dict(zip(needed, (CONTROL[0], CONTROL[2]), strict=True))
        return Vocabulary([names.get(token, token) for token in tokens], list(range(len(tokens))))
    others = [place for token, place in places.items() if token not in marks.tokens]
    of_marks = [places.get(mark, -1) for mark in marks.tokens]
    if len(needed) < len(marks.tokens):
        of_marks[1] = -1
    return Vocabulary([*CONTROL, *(tokens[place] for place in others)], [*of_marks, *others])
