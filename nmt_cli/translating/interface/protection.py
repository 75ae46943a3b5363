"""Patterns of text that translations copy, such as addresses and placeholders."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

COMMON, PLACEHOLDERS = "common", "placeholders"  # names of the patterns in NAMED
_EMOJI = (
    "[\u203c\u2049\u2122\u2139\u2194-\u2199\u21a9\u21aa\u231a\u231b\u2328\u23cf\u23e9-\u23f3"
    "\u23f8-\u23fa\u24c2\u25aa\u25ab\u25b6\u25c0\u25fb-\u25fe\u2600-\u27bf\u2934\u2935\u2b05-\u2b07"
    "\u2b1b\u2b1c\u2b50\u2b55\u3030\u303d\u3297\u3299\U0001f000-\U0001f1e5\U0001f200-\U0001faff]"
)
# A skin tone, the choice of a picture, or the tags of a flag.
_CHANGED = "(?:[\ufe0e\ufe0f\U0001f3fb-\U0001f3ff]|[\U000e0020-\U000e007e]+\U000e007f)*"
_NOT_AT_THE_END = r"""[^\s<>()"'.,;:!?\]}»”’。，、！？；：）」』】]"""
_FORMAT = (
    r"%(?:\d+\$|\(\w+\))?[-+#0]*(?:[1-9]\d*|\*)?(?:\.(?:\d+|\*))?(?:hh?|ll?|[jztL])?"
    "[diouxXeEfFgGaAcspn@]"
)
COMMON_PATTERNS = {
    "url": (
        r"(?:(?<![A-Za-z0-9])(?i:https?|ftps?|file)://|(?<![\w.@/-])(?i:www)\.(?=\w))"
        rf"""(?:(?:[^\s<>()"。，、！？；：（）「」『』【】]|\([^\s<>()"]*\))*"""
        rf"""(?:\([^\s<>()"]*\)|{_NOT_AT_THE_END}))"""
    ),
    "email": r"(?<![\w.%+-])[\w%+-](?:[\w.%+-]*[\w%+-])?@[\w-]+(?:\.[\w-]*\w)+",
    # Also arguments of ICU messages, such as {n, number, #} and {0, choice, 0#none|1#{1}}.
    "placeholder": (
        r"\$?\{[^{}\s]*\}|\{\{[^{}\n]{1,99}\}\}|\{\s*\w+\s*,\s*(?:number|date|time|spellout|ordinal"
        r"|duration|list|choice)\s*(?:,(?:[^{}]|\{[^{}]*\})*)?\}"
    ),
    # Not within a word behind a number: "100 %ig" is German.
    "format": rf"(?<!%){_FORMAT}(?![^\W\d_])|(?<![\d%])(?<!\d[ \u00a0\u202f]){_FORMAT}",
    # Neither dates, such as 24.12.2026, nor numbers, such as 1.000.000.
    "version": (
        r"(?<![\w.])(?!\d{1,2}\.\d{1,2}\.\d{4}(?![\w.]))(?!\d{1,3}(?:\.\d{3})+(?![\w.]))"
        r"(?:[vV]\d+(?:\.\d+)*|\d+(?:\.\d+){2,})(?:[-+][0-9A-Za-z]+(?:[.+-][0-9A-Za-z]+)*)?(?!\w|\.\d)"
    ),
    "emoji": (
        rf"{_EMOJI}{_CHANGED}(?:\u200d{_EMOJI}{_CHANGED})*"
        r"|[\U0001f1e6-\U0001f1ff]{2}|[0-9#*]\ufe0f?\u20e3"
    ),
}
# By name: the kinds of common patterns that it stands for.
NAMED = {COMMON: tuple(COMMON_PATTERNS), PLACEHOLDERS: ("placeholder", "format")}
# A pattern that matches nothing somewhere in this text would match nothing in most texts.
_PROBE = "A cat, a dog: 1 {b}.\n"
MOST_SHOWN = 60  # characters of a pattern in messages


class Match(NamedTuple):
    """A place in a text that its translation copies."""

    begin: int
    end: int
    kind: str  # the name of the group that matched, such as "url"; "": it has none


class Protection:
    """Finds what translations copy. Raises ValueError for the first pattern that is wrong."""

    def __init__(self, *lists: Iterable[str]) -> None:
        """Each of ``lists`` has patterns."""
        for patterns in lists:
            if isinstance(patterns, str):
                raise ValueError(f"a list of patterns is needed in place of {patterns!r}")
        self._patterns = list[tuple[str, re.Pattern[str]]]()
        for pattern in dict.fromkeys(chain(*lists)):
            kinds = NAMED.get(pattern, ()) if isinstance(pattern, str) else ()
            self._patterns += ((kind, _compiled(COMMON_PATTERNS[kind])) for kind in kinds)
            if not kinds:
                self._patterns.append(("", _compiled(pattern)))

    def found_in(self, text: str) -> Sequence[Match]:
        """Return the places that match a pattern, in order; those that overlap are one place."""
        found = [
            Match(*match.span(), kind or match.lastgroup or "")
            for kind, pattern in self._patterns
            for match in pattern.finditer(text)
            if match[0] and not match[0].isspace()
        ]
        found.sort(key=lambda match: (match.begin, -match.end))
        places = list[Match]()
        for match in found:
            if places and match.begin < places[-1].end:
                last = places[-1]
                kind = last.kind if match.end <= last.end else ""
                places[-1] = Match(last.begin, max(last.end, match.end), kind)
            else:
                places.append(match)
        return places


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    """Return ``pattern`` compiled. Raises ValueError if it is wrong, or matches nothing."""
    if not isinstance(pattern, str):
        raise ValueError(f"a pattern must be a string, but is {pattern!r}")
    shown = repr(f"{pattern[:MOST_SHOWN]}..." if len(pattern) > MOST_SHOWN else pattern)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what later versions of Python mean by it
            compiled = re.compile(pattern)
    except re.error as error:
        place = "" if error.pos is None else f" at character {error.pos + 1:,}"
        raise ValueError(f"{shown} is no regular expression: {error.msg}{place}") from None
    except (OverflowError, RecursionError):
        raise ValueError(f"{shown} is too large for a regular expression") from None
    if compiled.search("") or any(not match[0] for match in compiled.finditer(_PROBE)):
        raise ValueError(f"{shown} matches the empty string, which cannot be copied")
    return compiled
