"""Stand-ins for the objects of another program in a pickle: they hold attributes, and run nothing.

The classes of these objects need not be installed, and none of them is imported.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

# The keys under which omegaconf's configurations and their values hold what they stand for.
WRAPPING = ("_content", "_val")
DEEPEST = 4  # wrappings of one value


class Inert:
    """Any object, with the attributes that it gets."""

    __slots__ = ("state",)
    state: Any

    def __new__(cls, *arguments: Any) -> "Inert":
        """Return an object without attributes, whatever it would be made of."""
        made = super().__new__(cls)
        made.state = None
        return made

    def __setstate__(self, state: Any) -> None:
        self.state = state


def inert_mapping(*arguments: Any) -> dict[Any, Any]:
    """Return an empty mapping, whatever it would be made of; pickles fill it with its items."""
    return OrderedDict()


def unwrapped(value: Any) -> Any:
    """Return the value that a node of omegaconf holds; other values are themselves."""
    for _ in range(DEEPEST):
        state = value.state if isinstance(value, Inert) else None
        items = state if isinstance(state, Mapping) else {}
        inner = [items[key] for key in WRAPPING if key in items]
        if not inner:
            break
        value = inner[0]
    return value


def members(value: Any) -> Mapping[Any, Any]:
    """Return the attributes of an object or the items of a mapping; none of anything else."""
    value = unwrapped(value)
    if isinstance(value, Inert):
        value = value.state
    return value if isinstance(value, Mapping) else {}
