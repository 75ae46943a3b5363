"""The patterns of a service, which requests choose from: one of a client might never end."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nmt_cli.messages.errors import WrongUsageError
from nmt_cli.serving.requests import RefusedError
from nmt_cli.translating.protection import COMMON, MOST_SHOWN, Protection


class Patterns(NamedTuple):
    """Patterns of text that translations copy, by the names that requests may give."""

    by_name: Mapping[str, str] = {}

    def chosen(self, names: Sequence[str] | None) -> list[str]:
        """Return the patterns with ``names``, of which ``common`` is always one; None: all given.

        Raises RefusedError if a name is unknown.
        """
        known = {COMMON: COMMON, **self.by_name}
        for name in names or ():
            if name not in known:
                raise RefusedError(
                    400,
                    f"protect: this service has no pattern {name[:MOST_SHOWN]!r}; those it has are "
                    f"{', '.join(known)}",
                )
        return [known[name] for name in (self.by_name if names is None else names)]


NO_PATTERNS = Patterns()


def patterns_of(arguments: Sequence[str]) -> Patterns:
    """Return the patterns that the options of the command give.

    The name of each is that of its group, such as (?P<name>...), or else the pattern. Raises
    UserError if one is wrong.
    """
    found = dict[str, str]()
    for pattern in arguments:
        try:
            Protection([pattern])
        except ValueError as error:
            raise WrongUsageError(f"--protect: {error}.") from None
        name = next(iter(re.compile(pattern).groupindex), pattern)
        if found.setdefault(name, pattern) != pattern:
            raise WrongUsageError(f"--protect: two patterns have the name {name}; rename a group.")
    return Patterns(found)
