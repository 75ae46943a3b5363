"""Rules that leave out training pairs, counts of what each left out, and lines held out."""

from collections.abc import Iterable
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nmt_cli.corpus.duplicates import pair_hash
from nmt_cli.corpus.lines import is_blank
from nmt_cli.recipe.schema import DataConfig

EMPTY, DUPLICATE = "empty", "duplicate"
TOO_LONG, TOO_SHORT, LENGTH_RATIO = "too_long", "too_short", "length_ratio"
RULES = (EMPTY, DUPLICATE, TOO_LONG, TOO_SHORT, LENGTH_RATIO)
KEPT = -1  # other values are indices of RULES
LISTED_LINES = 1000  # line numbers kept for each rule and corpus; the count includes all lines


class LengthLimits(NamedTuple):
    """The lengths that a pair may have, in pieces without the end of sentence."""

    longest: int
    shortest: int = 1
    ratio: float | None = None


def training_limits(data: DataConfig) -> LengthLimits:
    """Return the limits that the recipe sets for training pairs."""
    return LengthLimits(data.max_length, data.filters.min_length, data.filters.max_length_ratio)


def has_empty_side(source: str, target: str) -> bool:
    """Return whether one side of the pair is blank."""
    return is_blank(source) or is_blank(target)


def rules_broken(
    source_lengths: npt.NDArray[np.int64],
    target_lengths: npt.NDArray[np.int64],
    limits: LengthLimits,
) -> npt.NDArray[np.int8]:
    """Return for each pair the first rule about lengths that it breaks, or ``KEPT``."""
    longer = np.maximum(source_lengths, target_lengths)
    shorter = np.minimum(source_lengths, target_lengths)
    broken = np.full(len(longer), KEPT, dtype=np.int8)
    if limits.ratio is not None:
        broken[longer > limits.ratio * shorter] = RULES.index(LENGTH_RATIO)
    broken[shorter < limits.shortest] = RULES.index(TOO_SHORT)
    broken[longer > limits.longest] = RULES.index(TOO_LONG)
    broken[shorter == 0] = RULES.index(EMPTY)  # text that is not blank may have no pieces
    return broken


class DroppedLines:
    """Counts the pairs that each rule dropped from one corpus, and keeps the first line numbers."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(RULES, 0)
        self._lines: dict[str, list[int]] = {rule: [] for rule in RULES}

    def add(self, rule: str, line_number: int) -> None:
        """Count the pair at this line."""
        self.counts[rule] += 1
        if len(self._lines[rule]) < LISTED_LINES:
            self._lines[rule].append(line_number)

    def facts(self) -> dict[str, Any]:
        """Return the manifest's entry: for each rule the count and the first line numbers, sorted.

        Lines of the rule ``empty`` may be added out of order: a blank side is noticed when the text
        is read, a side without pieces when it is encoded.
        """
        return {
            rule: {"count": self.counts[rule], "first_lines": sorted(self._lines[rule])}
            for rule in RULES
        }


MOST_PAIRS = 1 << 18  # 30 MB of hashes; usual validation and test sets have a hundredth of that


class HeldOut:
    """Hashes of held-out pairs, and which of them were not found in the training text so far."""

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self._hashes = {
            pair_hash(source, target)
            for source, target in islice(pairs, MOST_PAIRS)
            if not has_empty_side(source, target)
        }
        self._unmet = set(self._hashes)

    def meets(self, digest: bytes) -> bool:
        """Return whether the training pair with this hash is held out; if so, count it as met."""
        if digest not in self._hashes:
            return False
        self._unmet.discard(digest)
        return True

    @property
    def is_all_met(self) -> bool:
        """Whether every held-out pair was found in the training text."""
        return bool(self._hashes) and not self._unmet
