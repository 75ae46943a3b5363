"""PO files of gettext: their entries, and in which lines the texts of an entry are."""

import codecs
import re
from collections.abc import Iterable, Iterator, Mapping
from gettext import c2py
from typing import NamedTuple

from nmt_cli.files.lines import BYTE_ORDER_MARK
from nmt_cli.files.text_files import SAMPLE, encoding_of, extends_ascii

NAMED_CHARSET = re.compile(rb'(Content-Type:[^"\n]*charset=)([\w.:-]+)')
HEADER_FIELD = re.compile(r"^([\w-]+): *(.*)$", re.MULTILINE)
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
STRINGS = r'((?:"(?:[^"\\]|\\.)*"[ \t]*)*)'
KEYWORD = re.compile(rf"(msgctxt|msgid|msgid_plural|msgstr(?:\[\d{{1,2}}\])?)[ \t]*{STRINGS}")
DOMAIN = re.compile(rf"domain[ \t]*{STRINGS}")  # of all entries behind it
ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|(.))")
ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
PLURAL = re.compile(r"^Plural-Forms:.*?\bplural=([^;]+)", re.MULTILINE)
# Format directives, such as %s, by the flag of an entry, as gettext checks them.
# Counts have bounds, because a thousand zeros may be flags and digits in a million ways.
_NUMBER, _SIZE = r"(?:\d{1,4}\$)?", r"(?:\d{1,9}|\*(?:\d{1,4}\$)?)?"
_LENGTH = r"(?:hh?|ll?|[qLjzZt]|I(?:64|32)?|wf?\d{1,3})?"
_PRINTF = rf"%{_NUMBER}[-+ #0'I]{{0,9}}{_SIZE}(?:\.{_SIZE})?{_LENGTH}"
_C = rf"{_PRINTF}(?:[diouxXeEfFgGaAcCsSpnm]|<\w+>)"
_PYTHON = rf"%(?:\([^()]*\))?[-+ #0]{{0,9}}{_SIZE}(?:\.{_SIZE})?[hlL]?[diouxXeEfFgGcrsa]"
_ALIKE = ("c++-format", "csharp-format", "java-format", "python-brace-format", "rust-format")
FORMATS: Mapping[str, str] = {
    **dict.fromkeys(_ALIKE, r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}"),
    **dict.fromkeys(("kde-format", "kde-kuit-format"), r"%[1-9]\d?"),
    **dict.fromkeys(("smalltalk-format", "ycp-format"), r"%\d"),
    "boost-format": rf"%\|[^|]*\||%\d+%|{_C}",
    "c-format": _C,
    "elixir-format": r"%\{\w+\}",
    "go-format": rf"{_PRINTF}[a-zA-Z]",
    "java-printf-format": (
        rf"%(?:{_NUMBER}|<)[-#+ 0,(]{{0,9}}\d{{0,9}}(?:\.\d{{1,9}})?[tT]?[a-zA-Z]"
    ),
    "javascript-format": rf"{_PRINTF}[diouxXeEfFgGcsj]|\$\d+",
    "lisp-format": r"~[-+\d,'#vV:@]*[a-zA-Z%&|~(){}\[\]<>;^*?$/]",
    "objc-format": rf"%#@\w+@|{_PRINTF}@|{_C}",
    "perl-brace-format": r"\{\w+\}",
    "php-format": rf"%{_NUMBER}(?:[-+ 0]|'.){{0,9}}\d{{0,9}}(?:\.\d{{1,9}})?[bcdeEfFgGosuxX]",
    "python-format": _PYTHON,
    "qt-format": r"%L?(?:[1-9]\d?|n)",
    "qt-plural-format": r"%L?n",
    "ruby-format": rf"%\{{[^{{}}]*\}}|%<[^<>]*>[-+ #0*\d.]{{0,20}}[a-zA-Z]|{_C}",
    "sh-format": r"\$\w+|\$\{\w+\}",
}
# Flags that are not in FORMATS, such as awk-format, stand for directives as in C.
FORMAT_FLAG = re.compile(r"(?!no-|possible-|impossible-)[\w+]+(?:-\w+)*-format")
OFTEN = 5  # numbers below 1,000; gettext checks all directives of a form that is for more of them
LONGEST_TEXT = 1_000_000  # characters
LONGEST_SHOWN = 40  # characters of a wrong line


class PoText(NamedTuple):
    """A text of an entry."""

    text: str
    begin: int  # its first line, counted from 1
    end: int  # behind its last line


class Plural(NamedTuple):
    """Which of the forms of a translation is for one thing."""

    one: int = 0
    is_often: bool = False  # as in Russian, where it is also for 21, 31, ...


AS_IN_ENGLISH = Plural()


class PoEntry(NamedTuple):
    """An entry: its texts by their keywords, such as msgid and msgstr[0], in their order."""

    line: int  # of its first comment or text
    texts: dict[str, PoText]
    flags: frozenset[str]  # such as fuzzy and c-format
    is_obsolete: bool
    plural: Plural = AS_IN_ENGLISH  # by the header of the file

    @property
    def is_fuzzy(self) -> bool:
        """Whether its translation is to be looked at."""
        return "fuzzy" in self.flags

    @property
    def is_header(self) -> bool:
        """Whether its translation is the header of the file."""
        return not self.texts["msgid"].text and "msgctxt" not in self.texts

    @property
    def formats(self) -> str | None:
        """The pattern of its format directives, if it has a flag of such."""
        flags = [flag for flag in sorted(self.flags) if FORMAT_FLAG.fullmatch(flag)]
        return rf"%%|{FORMATS.get(flags[0], _C)}" if flags else None

    def pairs(self) -> Iterator[tuple[PoText, PoText]]:
        """Yield source and translation; the forms for several things translate the plural."""
        forms = [text for key, text in self.texts.items() if key.startswith("msgstr")]
        for number, form in enumerate(forms):
            is_one = number == self.plural.one and len(forms) > 1
            is_plural = "msgid_plural" in self.texts and not is_one
            yield self.texts["msgid_plural" if is_plural else "msgid"], form


def po_language(header: PoEntry) -> str | None:
    """Return the language of the translations, if the header names it."""
    fields: dict[str, str] = dict(HEADER_FIELD.findall(_fields(header)))
    return fields.get("Language", "").partition("@")[0].strip() or None


def _plural_of(header: PoEntry) -> Plural:
    """Return the form for one thing by the formula of the header, if it has one."""
    formula = PLURAL.search(_fields(header))
    try:
        form = c2py(formula[1].strip() if formula else "n != 1")
        forms = [form(number) for number in range(1000)]
    except (ValueError, ZeroDivisionError):  # that of a template is no formula
        return AS_IN_ENGLISH
    return Plural(forms[1], forms.count(forms[1]) > OFTEN)


def _fields(header: PoEntry) -> str:
    return next(text.text for key, text in header.texts.items() if key.startswith("msgstr"))


class PoError(ValueError):
    """A ``line`` of a PO file is wrong; the message is the reason."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


def po_charset(start: bytes) -> str:
    """Return the encoding that the header in ``start`` names, else UTF-8.

    Raises PoError if it cannot be read.
    """
    if (other := encoding_of(start[:SAMPLE])) is not None:
        raise PoError(1, f"it is {other}; convert the file to UTF-8")
    match = NAMED_CHARSET.search(start)
    if match is None or match[2] == b"CHARSET":  # that of a template
        return "utf-8"
    if not extends_ascii(name := match[2].decode("latin-1")):
        line = start.count(b"\n", 0, match.start()) + 1
        raise PoError(line, f"the charset {name} is not supported; convert the file to UTF-8")
    return codecs.lookup(name).name


def po_entries(lines: Iterable[bytes], encoding: str) -> Iterator[PoEntry]:
    """Yield the entries of a PO file. Raises PoError for the first line that is wrong."""
    plural = AS_IN_ENGLISH
    for entry in _entries(lines, _Reader(encoding)):
        plural = _plural_of(entry) if entry.is_header else plural
        yield entry._replace(plural=plural)


def _entries(lines: Iterable[bytes], reader: "_Reader") -> Iterator[PoEntry]:
    for line in lines:
        yield from reader.take(line)
    yield from reader.end()


class _Reader:
    """Takes the lines of a PO file, and makes entries of them."""

    def __init__(self, encoding: str) -> None:
        self._number, self._encoding = 0, encoding
        self._texts: dict[str, list[PoText]] = {}  # the lines of each
        self._key, self._length = "", 0  # of the text that the line before belongs to
        self._first_line = 0
        self._flags, self._is_obsolete = set[str](), False

    def take(self, raw: bytes) -> Iterator[PoEntry]:
        """Yield the entry before ``raw``, the next line, if it ends there."""
        self._number += 1
        if self._number == 1:
            raw = raw.removeprefix(BYTE_ORDER_MARK)
        line = self._decoded(raw).strip()
        is_obsolete = line.startswith("#~")
        if is_obsolete:
            line = line[2:].lstrip()
        if line.startswith("#") or (is_obsolete and line.startswith("|")):
            yield from self._comment(line)
        elif self._key and line and re.fullmatch(STRINGS, line) is not None:
            self._add(line)
        elif (match := KEYWORD.fullmatch(line)) is not None:
            yield from self._keyword(match[1], match[2], is_obsolete)
        elif DOMAIN.fullmatch(line) is not None:
            yield from self.end()
        elif line:
            shown = line[:LONGEST_SHOWN]
            raise self._wrong(f"{shown!r} is no line of a PO file")
        else:
            self._key = ""

    def end(self) -> Iterator[PoEntry]:
        """Yield the entry that the lines so far end with, if there is one."""
        if not self._texts:
            return
        if "msgid" not in self._texts or not any(key.startswith("msgstr") for key in self._texts):
            raise self._wrong("an entry ends here that has no msgid and msgstr")
        texts = {
            key: PoText("".join(each.text for each in lines), lines[0].begin, lines[-1].end)
            for key, lines in self._texts.items()
        }
        yield PoEntry(self._first_line, texts, frozenset(self._flags), self._is_obsolete)
        self._texts, self._key, self._flags, self._first_line = {}, "", set(), 0

    def _comment(self, line: str) -> Iterator[PoEntry]:
        if self._has_translation:
            yield from self.end()
        self._key = ""
        self._first_line = self._first_line or self._number
        if line.startswith("#,"):
            self._flags.update(map(str.strip, line[2:].split(",")))

    def _keyword(self, key: str, text: str, is_obsolete: bool) -> Iterator[PoEntry]:
        if self._has_translation and not key.startswith("msgstr"):
            yield from self.end()
        if key in self._texts:
            raise self._wrong(f"{key} is given twice in an entry")
        self._first_line = self._first_line or self._number
        self._is_obsolete, self._key, self._length = is_obsolete, key, 0
        self._texts[key] = []
        self._add(text)

    def _add(self, strings: str) -> None:
        """Add a line of the text of ``_key``, which may have several strings, or none."""
        text = _unescaped("".join(STRING.findall(strings)))
        self._length += len(text)
        if self._length > LONGEST_TEXT:
            raise self._wrong(f"a text has more than {LONGEST_TEXT:,} characters")
        self._texts[self._key].append(PoText(text, self._number, self._number + 1))

    @property
    def _has_translation(self) -> bool:
        return any(key.startswith("msgstr") for key in self._texts)

    def _decoded(self, raw: bytes) -> str:
        try:
            return raw.decode(self._encoding)
        except UnicodeDecodeError:
            raise self._wrong(f"the line is not {self._encoding}") from None

    def _wrong(self, what: str) -> PoError:
        return PoError(self._number, what)


def _unescaped(text: str) -> str:
    def meaning(match: re.Match[str]) -> str:
        if match[1] or match[2]:
            return chr(int(match[1], 8) if match[1] else int(match[2], 16))
        return ESCAPED.get(match[3], match[3])

    return ESCAPE.sub(meaning, text)
