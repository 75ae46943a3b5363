"""The vocabularies of a model of fairseq: four marks, then the words of ``dict.LANGUAGE.txt``."""

from pathlib import Path

from nmt_cli.corpus.tokenizers.normalization import SIDES, Side
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import CONTROL
from nmt_cli.files.file_contents import decoded, read_content
from nmt_cli.interchange.files import TextFiles
from nmt_cli.interchange.vocabularies import (
    Vocabulary,
    marks_first,
    problems_of_pieces,
)
from nmt_cli.messages.errors import DamagedError, UserError

MARKS = ("<s>", "<pad>", "</s>", "<unk>")  # ids 0 to 3
OVERWRITE = "#fairseq:overwrite"
LONGEST = 60  # characters of a line in a message


def read_vocabularies(
    checkpoint: Path,
    files: TextFiles,
    languages: tuple[str | None, str | None],
    reasons: list[str],
    *,
    are_words: bool,
) -> dict[Side, Vocabulary]:
    """Return the vocabularies, from ``files`` or from the folder of ``checkpoint``.

    The reasons against them are added to ``reasons``; ``are_words`` is true for text in pieces.
    Raises UserError if a file is not found or cannot be read, DamagedError if one is damaged.
    """
    of_target = files.target_vocabulary or files.source_vocabulary
    found: dict[Side, Vocabulary] = {}
    for side, named, language in zip(
        SIDES, (files.source_vocabulary, of_target), languages, strict=True
    ):
        path = named if named is not None else _beside(checkpoint, side, language)
        found[side] = marks_first(_read_symbols(path), [MARKS.index(mark) for mark in CONTROL])
        reasons += problems_of_pieces(found[side].pieces, side, are_words=are_words)
    return found


def _beside(checkpoint: Path, side: Side, language: str | None) -> Path:
    if language is None:
        raise UserError(
            f"{checkpoint} does not name its {side} language, so its vocabulary cannot be found; "
            f"name it with --{side}-vocabulary."
        )
    path = checkpoint.parent / f"dict.{language}.txt"
    if not path.is_file():
        raise UserError(
            f"{path} not found; put the {side} vocabulary there, beside the checkpoint, or name it "
            f"with --{side}-vocabulary."
        )
    return path


def _read_symbols(path: Path) -> list[str]:
    """Return the symbols of a dictionary by id.

    One that no text has, since a later one has its spelling or since it holds white space, gets a
    name with its id. Raises UserError if it cannot be read, DamagedError if it is damaged.
    """
    text = decoded(read_content(path, "; is it a vocabulary?"), path)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    symbols = list(MARKS)
    ids = {symbol: number for number, symbol in enumerate(symbols)}
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else (), start=1):
        word, is_new = _word_of(line, f"{path}:{number}")
        if word in ids and not is_new:
            shown = ascii(word)[:LONGEST]
            raise DamagedError(f"{path}:{number} holds {shown} again, without {OVERWRITE}.")
        if word in ids and word not in CONTROL:  # our marks are no spellings of text
            symbols[ids[word]] = _name_of(ids[word])
        ids[word] = len(symbols)
        symbols.append(word if word.split() == [word] else _name_of(ids[word]))
    return symbols


def _word_of(line: str, place: str) -> tuple[str, bool]:
    """Return the word in a line, and whether it takes the place of an earlier one."""
    word, space, count = line.rstrip().rpartition(" ")
    is_new = count == OVERWRITE
    if is_new:
        word, space, count = word.rpartition(" ")
    try:
        int(count if space else "")
    except ValueError:
        shown = ascii(line)[:LONGEST]
        text = f"{place} is {shown}; each line has a word, a space and a count."
        raise DamagedError(text) from None
    return word, is_new


def _name_of(number: int) -> str:
    return f"<unreachable:{number}>"
