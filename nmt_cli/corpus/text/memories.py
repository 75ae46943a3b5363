"""Translation memories and translators' files: TMX, XLIFF 1.2 and 2, and PO, read as pairs.

A file is read as a stream, so its size does not matter. Its content decides what it is, because
many programs give XLIFF endings of their own.
"""

import io
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast
from xml.parsers import expat

from nmt_cli.corpus.text.language_codes import subtags_of
from nmt_cli.corpus.text.po_files import PoError, po_charset, po_entries, po_language
from nmt_cli.files.lines import LONGEST_LINE, REPLACEMENT, one_line
from nmt_cli.files.text_files import READ_AT_ONCE, open_text
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.proposals import any_of

MOST_LEVELS = 256  # elements in each other
XML_START = re.compile(rb"(?:\xef\xbb\xbf|\xff\xfe|\xfe\xff)?[\0\s]*<")  # also in UTF-16
UNITS = {"tu", "trans-unit", "segment"}
# The elements that hold a text, each within one element only: others hold alternatives and notes.
TEXTS = {
    ("tuv", "seg"),
    *((unit, side) for unit in ("trans-unit", "segment") for side in ("source", "target")),
}
NOT_TRANSLATED = {"new", "needs-translation", "initial"}  # states of a target in XLIFF
# What NAB AL Tools writes for a target that is missing.
MARK = re.compile(r"\s*\[(?:NAB: )?NOT TRANSLATED\]\s*")
# Inline elements by what they hold: nothing or the code of another format, or text.
CODES = {"bpt", "ept", "it", "ph", "ut", "x", "bx", "ex", "sc", "ec"}
AROUND_TEXT = {"hi", "g", "pc"}
LANGUAGE_KEYS = {  # of XLIFF
    "source": ("source-language", "srcLang"),
    "target": ("target-language", "trgLang"),
}
CODE_POINT = re.compile(r"0*[0-9A-Fa-f]{1,5}")
SIZE_OF_VARIANT = 100  # characters that an empty one counts for
UNITS_LOOKED_AT = 1000  # to find the languages of a file
MOST_LANGUAGES = 10  # named in a message


class Variant(NamedTuple):
    """The text of a unit in a language; None if the file does not name the language."""

    language: str | None
    text: str


Unit = list[Variant]


@contextmanager
def open_pairs(
    path: Path, languages: tuple[str, str], inline_tag: str | None = None
) -> Iterator[BinaryIO]:
    """Yield a stream of lines with the two texts of each pair and a tab between them.

    It has the method ``read`` only, which may return more bytes than it is asked for.
    ``inline_tag`` stands for each inline tag; None removes them. Raises UserError if the file
    cannot be opened; so does reading the stream if it is no such file, is damaged, declares
    entities or has no pair of the languages.
    """
    with open_text(path) as stream:
        lines = (_row(pair) for pair in pairs_in(path, stream, languages, inline_tag))
        yield cast(BinaryIO, _Joined(lines, stream, path))


def pairs_in(
    path: Path, stream: BinaryIO, languages: tuple[str, str], inline_tag: str | None = None
) -> Iterator[tuple[str, str]]:
    """Yield the pairs of the units of ``stream``; see ``open_pairs``.

    A unit with several targets in the language gives a pair with each of them, and one whose
    target is missing a pair with an empty target.
    """
    found, has_pair = dict[str, None](), False
    for unit in _units(path, stream, inline_tag):
        for pair in pairs_of(unit, languages):
            has_pair = True
            yield pair
        if not has_pair and len(found) < MOST_LANGUAGES:
            found.update((each.language, None) for each in unit if each.language)
    if not has_pair:
        held = f"its languages are {any_of([*found], 'and')}" if found else "it has no segments"
        raise UserError(
            f"{path} has no pair of {languages[0]} and {languages[1]}: {held}; correct the "
            "languages, or give another file."
        )


def languages_in(path: Path) -> list[str]:
    """Return the languages of a file in the order in which it has them; PO names only the target's.

    Raises UserError if the file cannot be read.
    """
    with open_text(path) as stream:
        units = islice(_units(path, stream, None), UNITS_LOOKED_AT)
        return list(
            dict.fromkeys(each.language for unit in units for each in unit if each.language)
        )


def sources_without_language(path: Path) -> list[str]:
    """Return sources of a file that names only the language of their translations, such as PO.

    Raises UserError if the file cannot be read.
    """
    with open_text(path) as stream:
        units = islice(_units(path, stream, None), UNITS_LOOKED_AT)
        return [
            unit[0].text
            for unit in units
            if unit and unit[0].language is None and any(each.language for each in unit)
        ]


def pairs_of(unit: Unit, languages: tuple[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of a unit. English matches en-GB, and pt-BR matches Portuguese."""
    source, target = languages
    sources = sorted((distance(source, each.language), n) for n, each in enumerate(unit))
    if not sources or sources[0][0] == FAR:
        return
    chosen = sources[0][1]
    for number, variant in enumerate(unit):
        if number != chosen and distance(target, variant.language) < FAR:
            yield unit[chosen].text, variant.text


FAR = 1000  # of languages that do not match


@lru_cache(maxsize=1000)
def distance(wanted: str, language: str | None) -> int:
    """Return how far a language is from the ``wanted`` one: 0 if it is the same."""
    if language is None:
        return FAR - 1
    codes = subtags_of(wanted), subtags_of(language)
    if any(a != b for a, b in zip(*codes, strict=False)):
        return FAR
    return abs(len(codes[0]) - len(codes[1]))


def _row(pair: tuple[str, str]) -> bytes:
    sides = (one_line(text).replace("\t", " ").strip() for text in pair)
    return ("\t".join(sides) + "\n").encode(errors="replace")


def _units(path: Path, stream: BinaryIO, inline_tag: str | None) -> Iterator[Unit]:
    first = stream.read(READ_AT_ONCE)
    if XML_START.match(first):
        yield from _XmlUnits(path, inline_tag).read(first, stream)
        return
    lines = chain(io.BytesIO(first[: first.rfind(b"\n") + 1]), _rest(first, stream))
    try:
        yield from _po_units(lines, po_charset(first))
    except PoError as error:
        raise UserError(f"{path}:{error.line}: {error}.") from None


def _po_units(lines: Iterable[bytes], charset: str) -> Iterator[Unit]:
    language = None
    for entry in po_entries(lines, charset):
        if entry.is_header:
            language = po_language(entry)
        elif not entry.is_obsolete:
            for source, target in entry.pairs():
                text = "" if entry.is_fuzzy else target.text
                yield [Variant(None, source.text), Variant(language, text)]


def _rest(first: bytes, stream: BinaryIO) -> Iterator[bytes]:
    """Yield the lines behind the last line feed of ``first``."""
    begun = first[first.rfind(b"\n") + 1 :] + stream.readline(LONGEST_LINE)
    yield from [begun] if begun else []
    yield from iter(lambda: stream.readline(LONGEST_LINE), b"")


class _XmlUnits:
    """Collects the units of TMX and XLIFF from the events of expat."""

    def __init__(self, path: Path, inline_tag: str | None) -> None:
        self._path, self._inline_tag = path, inline_tag or ""
        self._found: list[Unit] = []
        self._names: list[str] = []  # of the elements that are open
        self._unit: Unit = []
        self._is_open = False  # whether the unit is not translated yet
        self._languages: dict[str, str | None] = {}  # of source and target, in XLIFF
        self._language: str | None = None  # of the text that is read
        self._text: list[str] | None = None  # of a segment, while it is read
        self._size = 0  # characters of the unit
        self._level_of_text = self._level_of_code = 0
        parser = self._parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.EntityDeclHandler = self._refuse_entities
        parser.SkippedEntityHandler = self._refuse_entities

    def read(self, block: bytes, stream: BinaryIO) -> Iterator[Unit]:
        """Yield the units of a document that begins with ``block`` and goes on in ``stream``."""
        num_bytes = 0
        try:
            while block:
                self._parser.Parse(block)
                num_bytes += len(block)
                if num_bytes - self._parser.CurrentByteIndex > LONGEST_LINE:
                    raise self._wrong(f"a tag is longer than {LONGEST_LINE >> 20} MB")
                yield from self._found
                self._found.clear()
                block = stream.read(READ_AT_ONCE)
            self._parser.Parse(b"", True)
        except expat.ExpatError as error:
            raise self._wrong(f"not XML: {expat.errors.messages[error.code]}") from None
        except (LookupError, ValueError) as error:
            raise self._wrong(f"its encoding is not supported: {error}") from None
        yield from self._found

    def _wrong(self, what: str) -> UserError:
        return UserError(f"{self._path}:{self._parser.ErrorLineNumber}: {what}.")

    def _refuse_entities(self, name: str, *_: object) -> None:
        raise self._wrong(f"the entity {name[:40]} is none of XML's own; replace it by its text")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        name = name.rpartition(":")[2]
        parent = self._names[-1] if self._names else ""
        if len(self._names) == MOST_LEVELS:
            raise self._wrong(f"more than {MOST_LEVELS} elements are in each other")
        if not parent and name not in {"tmx", "xliff"}:
            raise self._wrong(f"the root is {name[:40]}; it must be tmx or xliff")
        self._names.append(name)
        if self._text is not None:
            self._start_inline(name, attributes)
        elif name in UNITS:
            self._unit, self._size = [], 0
            self._is_open = attributes.get("state") in NOT_TRANSLATED
        elif name == "tuv":
            self._language = attributes.get("xml:lang", attributes.get("lang"))
        elif name in {"xliff", "file"}:
            for side, keys in LANGUAGE_KEYS.items():
                found = next((attributes[key] for key in keys if key in attributes), None)
                self._languages[side] = found or self._languages.get(side)
        elif (parent, name) in TEXTS:
            self._start_text(name, attributes)

    def _start_text(self, name: str, attributes: dict[str, str]) -> None:
        if name != "seg":
            self._language = attributes.get("xml:lang", self._languages.get(name))
        self._text, self._level_of_text = [], len(self._names)
        self._grow(SIZE_OF_VARIANT)
        is_open = self._is_open or attributes.get("state") in NOT_TRANSLATED
        # The text of a target that is not translated is left out like a code.
        self._level_of_code = len(self._names) if is_open and name == "target" else 0

    def _start_inline(self, name: str, attributes: dict[str, str]) -> None:
        assert self._text is not None
        if self._level_of_code:
            return
        if name == "cp":
            code = attributes.get("hex", "")
            self._characters(chr(int(code, 16)) if CODE_POINT.fullmatch(code) else REPLACEMENT)
        elif name in CODES | AROUND_TEXT:
            self._text.append(self._inline_tag)
            self._level_of_code = len(self._names) if name in CODES else 0

    def _characters(self, text: str) -> None:
        if self._text is None or self._level_of_code:
            return
        self._grow(len(text))
        self._text.append(text)

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > LONGEST_LINE:
            raise self._wrong(f"a unit has more than {LONGEST_LINE >> 20} million characters")

    def _end(self, _: str) -> None:
        level, name = len(self._names), self._names.pop()
        if self._text is not None:
            if level == self._level_of_text:
                text = "".join(self._text)
                self._unit.append(Variant(self._language, "" if MARK.fullmatch(text) else text))
                self._text, self._level_of_code = None, 0
            elif level == self._level_of_code:
                self._level_of_code = 0
            elif not self._level_of_code and name in AROUND_TEXT:
                self._text.append(self._inline_tag)
        elif name in UNITS:
            if name != "tu" and len(self._unit) == 1:  # without a target
                self._unit.append(Variant(self._languages.get("target"), ""))
            self._found.append(self._unit)


class _Joined:
    """The bytes of ``lines``; for ``bytes_read`` they are those of the stream they come from."""

    def __init__(self, lines: Iterator[bytes], stream: BinaryIO, path: Path) -> None:
        self._lines, self.name = lines, str(path)
        self.raw = cast(io.BufferedReader, stream).raw

    def read(self, size: int) -> bytes:
        """Return whole lines, of ``size`` bytes or more unless they are the last ones."""
        block = bytearray()
        while len(block) < size and (line := next(self._lines, b"")):
            block += line
        return bytes(block)
