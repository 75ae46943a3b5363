"""Messages of ICU: where the texts in their arguments begin and end.

An argument such as ``{n, plural, one {# dog} other {# dogs}}`` has branches with texts, which may
have arguments themselves. What is before, between and behind the branches is the frame.
"""

from __future__ import annotations

import re

Syntax = re.Pattern[str]
CODE = "\ufffc"  # stands for each code of a text that has some
_ARGUMENT = r"\{\s*[^\s{},]+\s*,\s*(?:plural|select|selectordinal)\s*,"
_KEY = rf"\s*(?:offset\s*:\s*\d+\s+)?[^\s{{}},{CODE}]+\s*\{{"
_BETWEEN = re.compile(rf"\}}(?:{_KEY}|\s*\}})")  # two branches, or behind the last
QUOTED = r"'[{}|#](?:[^']|'')*(?:'|\Z)"
# Programs such as Angular have no quotation; what is no message otherwise is read so.
WITH_QUOTATION, WITHOUT = (
    re.compile(rf"{each}{_ARGUMENT}{_KEY}|[{{}}]") for each in (rf"''|{QUOTED}|", "")
)


def has_branches(text: str) -> bool:
    """Return whether an argument with branches begins in ``text``."""
    return re.search(_ARGUMENT, text) is not None


def syntax_of(text: str) -> Syntax | None:
    """Return in which syntax ``text`` is a message with branches; None if it is none."""
    return next((each for each in (WITH_QUOTATION, WITHOUT) if frame_in(text, each)), None)


def frame_in(text: str, syntax: Syntax) -> list[tuple[int, int]]:
    """Return the places of the frame of a message; none if it has no branches or is incomplete."""
    found, are_branches, end = list[tuple[int, int]](), list[bool](), 0
    while each := syntax.search(text, end):
        end, is_branch = each.end(), len(each[0]) > 1
        if each[0].startswith("{"):
            are_branches.append(is_branch)
            found += [each.span()] * is_branch
        elif each[0] == "}":
            if not are_branches:
                return []
            if are_branches.pop():
                if (between := _BETWEEN.match(text, each.start())) is None:
                    return []
                end = between.end()
                found.append(between.span())
                are_branches += [True] * between[0].endswith("{")
    return [] if are_branches else found


def have_one_frame(message: str, other: str, syntax: Syntax) -> bool:
    """Return whether two messages have the same frame."""
    frames = [[each[i:j] for i, j in frame_in(each, syntax)] for each in (message, other)]
    return frames[0] == frames[1]
