"""Samples of the lines of corpora, and the encoding of text that is not UTF-8."""

import unicodedata
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from nmt_cli.corpus.text.characters import LANGUAGES
from nmt_cli.corpus.text.language_codes import NAMES, base_of
from nmt_cli.corpus.text.memories import open_pairs
from nmt_cli.corpus.text.parallel_text import RowReader
from nmt_cli.corpus.text.text_traits import probability_of
from nmt_cli.files.lines import BYTE_ORDER_MARK
from nmt_cli.files.text_files import SUFFIXES, is_read_again, open_text
from nmt_cli.files.text_forms import KEYS_OF_SIDES
from nmt_cli.messages.errors import UserError
from nmt_cli.recipe.sections.corpora import ParallelFiles

NUM_LINES = 200
START, BLOCK = 1 << 20, 1 << 16  # bytes of text: at the begin of a file, and at other places
LONGEST = 2000  # characters of a line
PLACES = 10  # with the begin; of a compressed file, only the begin is read
# 8-bit encodings, as iconv and Python call them, and the languages that were written in them.
ENCODINGS = {
    "WINDOWS-1251 KOI8-R KOI8-U ISO-8859-5": LANGUAGES["CYRILLIC"],
    "ISO-8859-2 WINDOWS-1250": "bs cs hr hu pl ro sh sk sl sq sr",
    "ISO-8859-9 WINDOWS-1254": "az ku tr",
    "ISO-8859-13 WINDOWS-1257": "et lt lv",
    "ISO-8859-7 WINDOWS-1253": "el",
    "WINDOWS-1256 ISO-8859-6": LANGUAGES["ARABIC"],
    "WINDOWS-1255 ISO-8859-8": LANGUAGES["HEBREW"],
    "CP874": "th",
    "EUC-JP CP932": "ja",
    "GB18030 BIG5": "zh",
    "CP949": "ko",
}
WESTERN = "ISO-8859-1 WINDOWS-1252"  # of the other languages in Latin letters
FEWEST_BAD = 3  # lines
LEAST_BAD = 0.9  # of the lines that are not ASCII; damaged UTF-8 has fewer
LEAST_PROBABILITY = 0.5  # of the language, as a mean over lines in the right encoding


class Sample(NamedTuple):
    """Lines of both sides, the source first; none is blank, and they are of different pairs."""

    sides: tuple[list[str], list[str]]
    encodings: dict[Path, str]  # of the files that are not UTF-8
    header: tuple[str, str] | None  # names of the columns of both sides, if they became a pair


def sample_of(files: ParallelFiles, languages: tuple[str, str]) -> Sample | None:
    """Return lines of a corpus, which ``with_languages`` has returned.

    Returns None if a file cannot be read, or not again: the function that reads it next raises the
    error.
    """
    paths = list(files.paths.values())
    if not all(map(is_read_again, paths)):
        return None
    try:
        lines = {path: _lines_of(path, files) for path in paths}
        first = next(iter(lines[paths[0]]), b"")
        rows = None if files.rows is None else RowReader.of(files, first)
    except UserError:
        return None
    encodings = dict[Path, str]()
    for side, path in enumerate(paths):
        of_file = languages[side : side + 1] if rows is None else languages
        encoding = None if path == files.memory else eight_bit_encoding(lines[path], of_file)
        if encoding is not None:
            encodings[path] = encoding
            lines[path] = [line.decode(encoding, "replace").encode() for line in lines[path]]
    if rows is None:
        source, target = (_texts(lines[path]) for path in files.text_files)
        return Sample((source, target), encodings, None)
    pairs = list(_pairs(rows, lines[paths[0]]))
    source, target = (_texts([pair[side] for pair in pairs]) for side in (0, 1))
    is_first_a_pair = files.tsv is not None and not rows.has_header and source and target
    header = named_columns(source[0], target[0], languages) if is_first_a_pair else None
    return Sample((source, target), encodings, header)


def _lines_of(path: Path, files: ParallelFiles) -> list[bytes]:
    """Return lines from a few places of a file that are not blank, the first one among them."""
    if path == files.memory:
        assert files.columns is not None, "call with_languages first"
        opened = open_pairs(path, files.columns, files.inline_tags)
    else:
        opened = open_text(path)
    with opened as stream:
        start = stream.read(START)
    blocks = [_whole_lines(start.removeprefix(BYTE_ORDER_MARK), is_cut=len(start) == START)]
    size = path.stat().st_size
    if path != files.memory and path.suffix not in SUFFIXES and size > START:
        with path.open("rb") as file:
            for place in range(PLACES - 1):
                file.seek(START + (size - START) * place // (PLACES - 1))
                block = file.read(BLOCK)
                blocks.append(_whole_lines(block, is_cut=len(block) == BLOCK)[1:])
    wanted = NUM_LINES // len(blocks)
    return [
        lines[number * len(lines) // min(wanted, len(lines))]
        for lines in ([line for line in block if line.strip()] for block in blocks)
        for number in range(min(wanted, len(lines)))
    ]


def _whole_lines(block: bytes, *, is_cut: bool) -> list[bytes]:
    lines = block.split(b"\n")
    return [line.removesuffix(b"\r") for line in (lines[:-1] if is_cut else lines)]


def _pairs(rows: RowReader, lines: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    for line in lines[rows.has_header :]:
        try:
            yield rows.sides(line, 1)
        except UserError:
            continue  # reading the whole file raises it with the number of the line


def _texts(lines: Sequence[bytes]) -> list[str]:
    return [line.decode(errors="replace")[:LONGEST] for line in lines if line.strip()]


def named_columns(one: str, other: str, languages: tuple[str, str]) -> tuple[str, str] | None:
    """Return the names of the source's and the target's column if the texts of a pair are these.

    They are the codes or English names of both languages, or such as "source" and "target".
    """
    names = [{base, NAMES.get(base, base).lower()} for base in map(base_of, languages)]
    for first, second in (names, *([{key} for key in pair] for pair in KEYS_OF_SIDES)):
        for source, target in ((one, other), (other, one)):
            if not first.isdisjoint(_meant(source)) and not second.isdisjoint(_meant(target)):
                return source, target
    return None


def _meant(name: str) -> set[str]:
    return {name.strip().lower(), base_of(name.strip())}


def eight_bit_encoding(lines: Sequence[bytes], languages: Sequence[str]) -> str | None:
    """Return iconv's name for the encoding of lines in ``languages``; None if it is not certain."""
    others = [line for line in lines if not line.isascii()]
    bad = [line for line in others if not _is_in("UTF-8", line)]
    if len(bad) < max(FEWEST_BAD, LEAST_BAD * len(others)):
        return None
    found = []
    for language in languages:
        for encoding in _encodings_of(base_of(language)):
            if all(_is_in(encoding, line) for line in bad):
                texts = [line.decode(encoding) for line in bad]
                # Encodings of a language may differ in a few letters and signs only.
                letters = sum(each.isalpha() for text in texts for each in text)
                found.append((round(probability_of(texts, language), 2), letters, encoding))
    probability, _, best = max(found, key=itemgetter(0, 1), default=(0.0, 0, ""))
    return best if probability >= LEAST_PROBABILITY else None


def _encodings_of(language: str) -> list[str]:
    listed = [names for names, languages in ENCODINGS.items() if language in languages.split()]
    western = [WESTERN] if not listed and language in LANGUAGES["LATIN"].split() else []
    return " ".join([*listed, *western]).split()


def _is_in(encoding: str, line: bytes) -> bool:
    """Return whether ``line`` is text in an encoding, without control characters of 8 bits."""
    try:
        text = line.decode(encoding)
    except UnicodeDecodeError:
        return False
    return not any(unicodedata.category(each) == "Cc" for each in text if not each.isascii())
