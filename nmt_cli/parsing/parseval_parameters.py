"""The rules of PARSEVAL that differ between experiments, in the file format of EVALB."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from nmt_cli.messages.errors import UserError
from nmt_cli.messages.figures import counted
from nmt_cli.messages.proposals import any_of, nearest

DEFAULT_FILE = Path(__file__).with_name("parseval.prm")
LONGEST_SHOWN = 50  # characters of a wrong value
NUMBER, LARGEST_NUMBER = re.compile("-?[0-9]{1,9}"), 999_999_999
SMALLEST_NUMBERS = {"DEBUG": -1, "MAX_ERROR": 0, "CUTOFF_LEN": 0, "LABELED": 0}
# How many values each key takes.
KEYS = {
    **dict.fromkeys(SMALLEST_NUMBERS, 1),
    "DELETE_LABEL": 1,
    "DELETE_LABEL_FOR_LENGTH": 1,
    "EQ_LABEL": 2,
    "EQ_WORD": 2,
}

Pairs = frozenset[tuple[str, ...]]


@dataclass(frozen=True)
class Parameters:
    """What PARSEVAL counts; the defaults are EVALB's own for keys that a file leaves out."""

    max_errors: int = 10  # sentences with other words than the gold tree
    cutoff_length: int = 40  # words of the longest sentence in the second summary
    is_labeled: bool = True
    deleted_labels: frozenset[str] = frozenset()  # of constituents, and tags of words
    deleted_labels_for_length: frozenset[str] = frozenset()  # tags
    equal_labels: Pairs = frozenset()
    equal_words: Pairs = frozenset()

    @cached_property
    def deleted_constituents(self) -> frozenset[str]:
        """The labels of constituents that do not count: ``deleted_labels`` and their equals."""
        pairs = [pair for pair in self.equal_labels if not self.deleted_labels.isdisjoint(pair)]
        return self.deleted_labels.union(*pairs)

    def are_equal_labels(self, one: str, other: str) -> bool:
        """Return whether two labels or tags match."""
        return one == other or _is_pair(one, other, self.equal_labels)

    def labels_equal_to(self, label: str) -> set[str]:
        """Return all labels that match ``label``."""
        return {label}.union(*(pair for pair in self.equal_labels if label in pair))

    def are_equal_words(self, one: str, other: str) -> bool:
        """Return whether two words match."""
        return one == other or _is_pair(one, other, self.equal_words)


def default_parameters() -> Parameters:
    """Return the parameters that are installed with nmt-cli."""
    lines = DEFAULT_FILE.read_text(encoding="utf-8").split("\n")
    return read_parameters(lines, str(DEFAULT_FILE))


def read_parameters(lines: Iterable[str], name: str) -> Parameters:
    """Return the parameters of a file; of a repeated number, the last counts.

    DEBUG is checked and ignored. Raises UserError with ``name`` and the line if a key or value is
    wrong.
    """
    values: dict[str, list[tuple[str, ...]]] = {key: [] for key in KEYS}
    for number, line in enumerate(lines, 1):
        key, *given = line.split() or ["#"]
        if not key.startswith("#"):
            _check(key, given, f"{name}:{number}")
            values[key].append(tuple(given))
    numbers = {key: int(values[key][-1][0]) for key in SMALLEST_NUMBERS if values[key]}
    return Parameters(
        max_errors=numbers.get("MAX_ERROR", Parameters.max_errors),
        cutoff_length=numbers.get("CUTOFF_LEN", Parameters.cutoff_length),
        is_labeled=bool(numbers.get("LABELED", Parameters.is_labeled)),
        deleted_labels=frozenset(label for (label,) in values["DELETE_LABEL"]),
        deleted_labels_for_length=frozenset(
            label for (label,) in values["DELETE_LABEL_FOR_LENGTH"]
        ),
        equal_labels=frozenset(values["EQ_LABEL"]),
        equal_words=frozenset(values["EQ_WORD"]),
    )


def _check(key: str, given: list[str], place: str) -> None:
    if key not in KEYS:
        meant = nearest(key, KEYS) or list(KEYS)
        raise UserError(f"{place}: {key} is not a parameter; did you mean {any_of(meant)}?")
    if len(given) != KEYS[key]:
        wanted = counted(KEYS[key], "value")
        raise UserError(f"{place}: {key} takes {wanted}, not {len(given)}.")
    if key in SMALLEST_NUMBERS and not _is_number(given[0], SMALLEST_NUMBERS[key]):
        raise UserError(
            f"{place}: {key} takes a whole number from {SMALLEST_NUMBERS[key]} to "
            f"{LARGEST_NUMBER:,}, not {given[0][:LONGEST_SHOWN]}."
        )


def _is_number(text: str, smallest: int) -> bool:
    return NUMBER.fullmatch(text) is not None and int(text) >= smallest


def _is_pair(one: str, other: str, pairs: Pairs) -> bool:
    return (one, other) in pairs or (other, one) in pairs
