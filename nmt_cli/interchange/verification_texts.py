"""The sentences that an export is verified with: those of a file, or drawn ones."""

import random
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from nmt_cli.corpus.lines import is_blank, read_lines
from nmt_cli.corpus.sentencepiece_tokenizer import SPACE_IN_PIECES
from nmt_cli.corpus.text_files import open_text
from nmt_cli.errors import UserError
from nmt_cli.interchange.verification import fits
from nmt_cli.model_directory import LoadedModel

LONGEST_DRAWN = 20  # pieces
SEED = 1
BYTE_PIECE = re.compile(r"<0x[0-9A-F]{2}>")
MOST_ATTEMPTS = 1_000


def verification_texts(loaded: LoadedModel, path: Path | None, number: int) -> list[str]:
    """Return the first ``number`` sentences of the file ``path`` that the model takes.

    Without a file, sentences are made of random pieces of the vocabulary. Raises UserError if the
    file cannot be read or has no such sentence.
    """
    texts = _drawn(loaded) if path is None else _lines_of(path)
    chosen = list(islice((text for text in texts if fits(loaded, text)), number))
    if not chosen:
        where, advice = "the vocabulary", "give --sentences FILE"
        if path is not None:
            where, advice = str(path), "give a file with others"
        raise UserError(f"{where} has no sentence that the model can translate; {advice}.")
    return chosen


def _lines_of(path: Path) -> Iterator[str]:
    with open_text(path) as stream:
        for line in read_lines(stream):
            if not is_blank(line.text):
                yield line.text


def _drawn(loaded: LoadedModel) -> Iterator[str]:
    tokenizer, rng = loaded.tokenizer, random.Random(SEED)
    marks = {tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id}
    size = tokenizer.source_size or tokenizer.size
    pieces = [
        piece
        for token, piece in enumerate(tokenizer.pieces(range(size), side="source"))
        if token not in marks and not BYTE_PIECE.fullmatch(piece)
    ]
    is_in_pieces = loaded.settings.text.type == "whitespace"
    for _ in range(MOST_ATTEMPTS if pieces else 0):
        drawn = [rng.choice(pieces) for _ in range(rng.randint(1, LONGEST_DRAWN))]
        text = " ".join(drawn)
        if not is_in_pieces:
            text = "".join(drawn).replace(SPACE_IN_PIECES, " ")
        if not is_blank(text):
            yield text
