"""The vocabularies of a model of Marian, in the order that ours have.

Marian writes a line of YAML for each piece. A library for YAML reads some of these lines, such as
"- : 7" and "yes: 8", as something else than a piece, so they are read one by one here. Vocabularies
that PyYAML wrote have keys of several lines as well.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from nmt_cli.corpus.tokenizers.mapped_sentencepiece import END, UNKNOWN, read_ids
from nmt_cli.corpus.tokenizers.normalization import Side
from nmt_cli.corpus.tokenizers.sentencepiece_tokenizer import load_processor
from nmt_cli.files.text_files import decoded, read_content
from nmt_cli.interchange.marian.files import SENTENCEPIECE, YAML, MarianFiles
from nmt_cli.interchange.vocabularies import Vocabulary, marks_first, read_models, rename
from nmt_cli.messages import logs
from nmt_cli.messages.errors import DamagedError
from nmt_cli.recipe.yaml_tree import MAX_BYTES, parse_yaml

ENTRY = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^"'].*?):\s+([0-9]{1,9})\s*""")
COMPLEX, NUMBER = "? ", re.compile(r"[0-9]{1,9}")  # of a key of several lines, and its number
ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))")
ESCAPED = {**dict(zip('"\\/ 0abtnvfre', '"\\/ \0\a\b\t\n\v\f\r\x1b', strict=True)), "N": "\x85",
           "_": "\xa0", "L": "\u2028", "P": "\u2029"}  # fmt: skip
OTHER_DELETE = b"\xc1\xbf"  # Marian writes U+007F in two bytes, which UTF-8 forbids
# What Nematus calls the marks, if they have these numbers.
OLD_NAMES = {0: ("eos", END), 1: ("UNK", UNKNOWN)}


def read_vocabularies(
    files: MarianFiles, sizes: Mapping[Side, int], reasons: list[str]
) -> tuple[dict[Side, Vocabulary], dict[Side, bytes] | None]:
    """Return the vocabularies, and the SentencePiece models; ``sizes`` are the rows of matrices.

    The reasons against them are added to ``reasons``. Raises UserError if a file cannot be read,
    DamagedError if it is damaged.
    """
    paths = files.sentencepiece
    if files.vocabularies["source"].suffix == SENTENCEPIECE:
        paths = files.vocabularies
    models = read_models(paths)
    found = {}
    for side, size in sizes.items():
        path = files.vocabularies[side]
        if files.sentencepiece is None and models is not None:
            pieces = _pieces_of_model(models[side], path, reasons)
        else:
            pieces = _pieces_of_list(path, size, reasons)
        name = path.name
        if len(pieces) != size:
            reasons.append(f"{name} has {len(pieces):,} pieces, its matrix {size:,} rows")
        elif missing := [mark for mark in (UNKNOWN, END) if mark not in pieces]:
            reasons.append(f"{name} has no {' and no '.join(missing)}")
        elif models is None:
            unknown, end = pieces.index(UNKNOWN), pieces.index(END)
            found[side] = marks_first(pieces, [unknown, -1, end])  # a piece <s> is not our mark
        else:
            found[side] = Vocabulary(pieces, list(range(size)))
    return found, models


def _pieces_of_model(model: bytes, path: Path, reasons: list[str]) -> list[str]:
    processor = load_processor(model, str(path))
    pieces = dict(enumerate(processor.id_to_piece(list(range(processor.get_piece_size())))))
    for number, mark in ((processor.unk_id(), UNKNOWN), (processor.eos_id(), END)):
        if number >= 0:
            rename(pieces, number, mark, reasons)
    return list(pieces.values())


def _pieces_of_list(path: Path, size: int, reasons: list[str]) -> list[str]:
    """Return the pieces by number; Marian uses the first ones if a list has more than ``size``."""
    if path.suffix == ".json":
        ids = read_ids(path)
    elif path.suffix in YAML:
        ids = parse_vocabulary(_text(path), path)
    else:
        ids = _ids_of_lines(_text(path), path)
    for number, (old, mark) in OLD_NAMES.items():
        if mark not in ids and ids.get(old) == number:
            ids[mark] = ids.pop(old)
    if len(ids) > size:
        logs.warning(f"of the {len(ids):,} pieces in {path}, Marian uses the first {size:,}.")
    ids = {piece: number for piece, number in ids.items() if number < size}
    if sorted(ids.values()) != list(range(len(ids))):
        reasons.append(f"the numbers in {path.name} are not 0 to {len(ids) - 1:,}, each once")
    return sorted(ids, key=ids.__getitem__)


def _text(path: Path) -> str:
    return decoded(read_content(path, "; is it a vocabulary?").replace(OTHER_DELETE, b"\x7f"), path)


def parse_vocabulary(text: str, path: Path) -> dict[str, int]:
    """Return the numbers of the pieces in YAML as Marian writes it.

    Raises DamagedError if a line is not a piece and a number, or has a piece again.
    """
    ids: dict[str, int] = {}
    lines = enumerate(text.split("\n"), start=1)
    for number, line in lines:
        if not line.strip() or line in ("---", "---\r"):
            continue
        if line.startswith(COMPLEX):
            piece, token = _complex(line, (following for _, following in lines))
        else:
            piece, token = _simple(line)
        if piece is None or piece in ids:
            again = "is no piece with its number" if piece is None else "has a piece again"
            raise DamagedError(
                f"{path}:{number}: this line {again}; get the vocabulary again as Marian wrote it."
            )
        ids[piece] = token
    return ids


def _simple(line: str) -> tuple[str | None, int]:
    """Return the piece in a line and its number; None as the piece if the line has none."""
    entry = ENTRY.fullmatch(line)
    if entry is None:
        return None, 0
    with suppress(ValueError, KeyError, OverflowError):  # of an escape without a character
        return _unquoted(entry[1]), int(entry[2])
    return None, 0


def _complex(first: str, following: Iterator[str]) -> tuple[str | None, int]:
    """Return the same of an entry of several lines: a key behind "? ", its number behind ": ".

    PyYAML writes long keys so, and those with a character that it takes for the end of a line.
    """
    entry = [first]
    for line in following:
        entry.append(line)
        if line.startswith(":"):
            break
    text = "\n".join(entry)
    found = parse_yaml(text, "").value if len(text) <= MAX_BYTES else None
    if not isinstance(found, dict) or len(found) != 1:
        return None, 0
    ((piece, number),) = found.items()
    is_number = isinstance(number, str) and NUMBER.fullmatch(number) is not None
    return (piece, int(number)) if is_number else (None, 0)


def _ids_of_lines(text: str, path: Path) -> dict[str, int]:
    """Return the numbers of the pieces in a file with one piece a line."""
    ids: dict[str, int] = {}
    for number, piece in enumerate(text.removesuffix("\n").split("\n")):
        if not piece or piece in ids:
            again = "has a piece again" if piece else "is empty"
            raise DamagedError(f"{path}:{number + 1}: this line {again}; get the vocabulary again.")
        ids[piece] = number
    return ids


def _unquoted(key: str) -> str:
    if key[0] == "'":
        return key[1:-1].replace("''", "'")
    if key[0] != '"':
        return key.strip(" ")
    piece = ESCAPE.sub(_escaped, key[1:-1])
    piece.encode()  # half a character is none
    return piece


def _escaped(match: re.Match[str]) -> str:
    digits = match[1] or match[2] or match[3]
    return chr(int(digits, 16)) if digits else ESCAPED[match[4]]
