"""Patterns of text that a service copies. Requests choose them by name.

A service takes no patterns from clients, because matching one of them might never end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nmt_cli.messages.errors import WrongUsageError
from nmt_cli.serving.requests import RefusedError
from nmt_cli.translating.protection import MOST_SHOWN, NAMED, Protection

ALWAYS_THERE = {name: name for name in NAMED}


class Patterns(NamedTuple):
    """The patterns, by the names that requests may give."""

    by_name: Mapping[str, str] = ALWAYS_THERE
    given: Sequence[str] = ()  # names of the options' patterns, used where a request names none

    def chosen(self, names: Sequence[str] | None) -> list[str]:
        """Return the patterns with ``names``; None: those given.

        Raises RefusedError if a name is unknown.
        """
        for name in names or ():
            if name not in self.by_name:
                raise RefusedError(
                    400,
                    f"protect: this service has no pattern {name[:MOST_SHOWN]!r}; those it has are "
                    f"{', '.join(self.by_name)}",
                )
        return [
            self.by_name[name] for name in dict.fromkeys(self.given if names is None else names)
        ]


NO_PATTERNS = Patterns()


def patterns_of(arguments: Sequence[str]) -> Patterns:
    """Return the patterns that the options of the command give.

    The name of each is that of its group, such as (?P<name>...), or else the pattern. Raises
    UserError if one is wrong.
    """
    by_name, given = {**ALWAYS_THERE}, list[str]()
    for pattern in arguments:
        try:
            Protection([pattern])
        except ValueError as error:
            raise WrongUsageError(f"--protect: {error}.") from None
        name = next(iter(re.compile(pattern).groupindex), pattern)
        if by_name.setdefault(name, pattern) != pattern:
            raise WrongUsageError(f"--protect: two patterns have the name {name}; rename a group.")
        given.append(name)
    return Patterns(by_name, given)
