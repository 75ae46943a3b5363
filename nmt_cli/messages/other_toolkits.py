"""The names of fairseq, OpenNMT-py, Sockeye, Marian and CTranslate2 for things, and the names here.

docs/how-to/moving-from-other-toolkits.md shows this table, and a test compares the two. Messages
propose names from it.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

from nmt_cli.messages.proposals import plain

TABLE = Path(__file__).with_name("other_toolkits.jsonl")  # a line for each row


@dataclass(frozen=True)
class Renamed:
    """One thing and the names that each toolkit gives it, separated by spaces."""

    # "training.max_steps" is a recipe's key, "translate --input" an option, "train RECIPE" an
    # argument, "train" a command; several are separated by ", ". Empty: nmt-cli does not have it.
    here: str
    fairseq: str = ""
    opennmt: str = ""
    sockeye: str = ""
    marian: str = ""
    ctranslate2: str = ""  # of its Python interface, which its programs also use
    note: str = ""  # what is different here
    also: str = ""  # further names that people try, which the page does not show
    example: str = ""  # a value to propose if the user's has another unit or form
    values: Mapping[str, str] = field(default_factory=dict)  # theirs, and what they are here

    def of_toolkits(self) -> tuple[str, ...]:
        """Return the names of each toolkit, in the order of the page's table."""
        return self.fairseq, self.opennmt, self.sockeye, self.marian, self.ctranslate2

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Every other name, without dashes in front."""
        return tuple(map(plain, " ".join([*self.of_toolkits(), self.also]).split()))

    def value_here(self, theirs: str) -> str | None:
        """Return what a value of another toolkit is here; None if the table does not have it."""
        with suppress(ValueError):  # 0.0 is 0
            return self.values.get(f"{float(theirs):g}")
        return self.values.get(theirs)

    def places(self) -> list[str]:
        """Return each key, option, argument or command that nmt-cli has for it."""
        return self.here.split(", ") if self.here else []


@cache
def renames() -> tuple[Renamed, ...]:
    """Return the table."""
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    return tuple(Renamed(**json.loads(line)) for line in lines)


def renamed(name: str) -> list[Renamed]:
    """Return the rows that hold ``name`` as a name of any toolkit."""
    written = plain(name)
    return [row for row in renames() if written in row.names]


def names_of_keys() -> dict[str, str]:
    """Return the recipe's key for each name that other toolkits give it."""
    return {
        name: key
        for row in reversed(renames())  # the first row that has a name decides
        for key in row.places()
        if "." in key
        for name in row.names
    }


def missing_here(name: str) -> str:
    """Return why nmt-cli does not have the thing called ``name``; "" if the table lacks it."""
    return next((row.note for row in renamed(name) if not row.here), "")
