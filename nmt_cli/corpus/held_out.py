"""Pairs that training should not see: those of the validation and of the test text."""

from collections.abc import Iterable
from itertools import islice

from nmt_cli.corpus.cleaning import has_empty_side
from nmt_cli.corpus.duplicates import pair_hash

MOST_PAIRS = 1 << 18  # 30 MB of hashes; texts to measure on are a hundredth of that


class HeldOut:
    """Hashes of the pairs, and which of them were not yet found in the training text."""

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
        """Whether every pair is in the training text too."""
        return bool(self._hashes) and not self._unmet
