"""Refuses pickles that copy what they hold, so that the size of the file bounds memory and time.

A set that is made of a list holds all of its items again, and so does what gets the attributes of
another object. A pickle of a few bytes could do so any number of times with the same list; those
that programs write do it once. A tuple that holds the same tuple twice, which does so again, takes
time exponential in its depth where it is a key of a dictionary: Python hashes each part anew.
"""

import pickletools
from collections.abc import Sequence
from typing import Any

PUTS, GETS = {"BINPUT", "LONG_BINPUT", "PUT"}, {"BINGET", "LONG_BINGET", "GET"}
MARK = pickletools.markobject
SETS = ("__builtin__ set", "builtins set")
MOST_TUPLES = 1000  # in a tuple, each as often as it is reached; programs write about ten
COPYING = (*SETS, "collections OrderedDict", "collections defaultdict", "collections Counter")


class _Value:
    """A value on the stack of a pickle: a tuple with its parts, a function with its name."""

    def __init__(self, kind: Any, parts: Sequence["_Value"] = ()) -> None:
        self.kind, self.parts = kind, parts
        self.is_copied = False
        self.num_tuples = 0
        if kind is pickletools.pytuple:
            self.num_tuples = 1 + sum(part.num_tuples for part in parts)
        if self.num_tuples > MOST_TUPLES:
            raise ValueError("a tuple holds the same tuples too often")

    def copy(self) -> None:
        """Note that the value is copied. Raises ValueError if it was already."""
        if self.is_copied and not isinstance(self.kind, str):  # classes copy nothing
            raise ValueError("it makes containers of what it holds already")
        self.is_copied = True


def refuse_copies(content: bytes) -> None:
    """Raise ValueError if a pickle makes more than one container or object of a value.

    Raises it as well if the pickle is damaged.
    """
    stack: list[_Value] = []
    kept: dict[Any, _Value] = {}
    try:
        for opcode, argument, _ in pickletools.genops(content):
            if opcode.name in PUTS:
                kept[argument] = stack[-1]
            elif opcode.name in GETS:
                stack.append(kept[argument])
            elif opcode.name == "GLOBAL":
                stack.append(_Value(argument))
            else:
                _step(opcode, stack)
    except LookupError:
        raise ValueError("its instructions make no sense") from None


def _step(opcode: pickletools.OpcodeInfo, stack: list[_Value]) -> None:
    """Do to the stack what an instruction does."""
    before, after = opcode.stack_before, opcode.stack_after
    taken: list[_Value] = []
    count = before.index(MARK) if MARK in before else len(before)
    if MARK in before:
        while stack[-1].kind is not MARK:
            taken.append(stack.pop())
        stack.pop()
    taken += [stack.pop() for _ in range(count)]
    if opcode.name == "REDUCE" and taken[1].kind in COPYING:
        if taken[0].kind is not pickletools.pytuple:
            raise ValueError("it calls a function without a tuple")
        for part in taken[0].parts:
            part.copy()
    elif opcode.name == "BUILD":
        taken[0].copy()
    if not after:
        return
    changes = before and before[0] in (pickletools.pylist, pickletools.pydict, pickletools.pyset)
    if changes or opcode.name == "BUILD":  # then the first value stays, with other contents
        stack.append(taken[-1])
    else:
        stack += [_Value(kind, taken) for kind in after]
