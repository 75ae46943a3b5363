"""Refuses pickles that copy what they hold, so that memory is bounded by the size of the file.

A container that is made of another one holds all of its items again. A pickle of a few bytes could
make any number of them, so each has to be made of what stands right there.
"""

import pickletools
import re
from collections.abc import Iterator
from typing import Any

SETS = {"__builtin__ set", "builtins set"}
ORDERED = {"collections OrderedDict", "collections defaultdict"}
PUTS, GETS = {"BINPUT", "LONG_BINPUT", "PUT"}, {"BINGET", "LONG_BINGET", "GET"}
LETTERS = {
    **{"EMPTY_LIST": "l", "EMPTY_TUPLE": "0", "TUPLE1": "1", "REDUCE": "R", "MARK": "m"},
    **{"BINUNICODE": "t", "APPEND": "a", "APPENDS": "A", "BUILD": "b"},
}
# After a name of a set: a list of texts, and the call. After an OrderedDict: a call with nothing.
COPYING = re.compile(r"s(?!l(mt*A|ta)?1R)|o(?!0R)")
# What objects are given is copied as well. It may stand anywhere, so they are few.
MOST_STATES = 8


def refuse_copies(content: bytes) -> None:
    """Raise ValueError if a container is made of anything but what stands behind its name."""
    letters = "".join(_letters(content))
    if COPYING.search(letters) or letters.count("b") > MOST_STATES:
        raise ValueError("it makes containers of what it holds already")


def _letters(content: bytes) -> Iterator[str]:
    """Yield a letter for each instruction: s for a set, o for an OrderedDict, t for a text."""
    kept, last = dict[Any, str](), "."
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name in PUTS:
            kept[argument] = last
            continue
        if opcode.name in GETS:
            last = kept.get(argument, ".")
            # A text or something else: a set may hold it, and copies nothing.
            last = last if last in "so" else "t"
        elif opcode.name == "GLOBAL":
            last = "s" if argument in SETS else "o" if argument in ORDERED else "."
        else:
            last = LETTERS.get(opcode.name, ".")
        yield last
