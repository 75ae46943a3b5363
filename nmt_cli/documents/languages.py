"""The languages that a document names become that of its translation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from nmt_cli.corpus.text.language_codes import base_of

NO_LANGUAGE = {"", "none", "x-none", "zxx"}
EAST_ASIAN = {"ja", "ko", "yue", "zh"}
# Written from the right, or with letters that change their shapes.
COMPLEX = {
    *("ar", "bn", "bo", "ckb", "dv", "dz", "fa", "gu", "he", "hi", "km", "kn", "ks", "lo", "ml"),
    *("mr", "my", "ne", "or", "pa", "ps", "sa", "sd", "si", "ta", "te", "th", "ug", "ur", "yi"),
}
ATTRIBUTE = re.compile(r"""\s(?:[\w.-]+:)?([\w.-]+)\s*=\s*("[^"]*"|'[^']*'|[^\s"'>]+)""")
COUNTRIES = {"Hans": "CN", "Hant": "TW"}  # OpenDocument names them in place of these scripts


def stays(named: str, language: str) -> bool:
    """Return whether a name of a language stays: that of none, or of a region of ``language``."""
    return named.lower() in NO_LANGUAGE or base_of(named) == language


def with_language(tag: str, language: str, names: Sequence[str] = ("lang", "lang", "lang")) -> str:
    """Return a start tag whose attribute for the script of ``language`` names it, if it is there.

    ``names`` are the attributes of European, East Asian and complex scripts, without prefixes.
    """
    base, *rest = language.split("-")
    name = names[(base_of(language) in EAST_ASIAN) + 2 * (base_of(language) in COMPLEX)]
    old = _places(name, tag)
    if not old or stays(tag[slice(*old[0])].strip("\"'"), language):
        return tag
    values = {name: language}
    if name.startswith("language"):  # of OpenDocument, where the country has its own attribute
        country = next((COUNTRIES.get(e, e) for e in rest if e in COUNTRIES or len(e) == 2), "none")
        kinds = {"language": base, "country": country, "rfc-language-tag": language}
        values = {name.replace("language", kind): value for kind, value in kinds.items()}
    for each, value in values.items():
        for begin, end in reversed(_places(each, tag)):
            tag = f'{tag[:begin]}"{escape(value)}"{tag[end:]}'
    return tag


def _places(name: str, tag: str) -> list[tuple[int, int]]:
    """Return where the values of an attribute begin and end, with their quotes."""
    found = ATTRIBUTE.finditer(tag)
    return [each.span(2) for each in found if each[1].lower() == name.lower()]
