"""Pairs that training should not see: those of the validation and of the test text."""

from collections.abc import Iterable
from itertools import islice

from nmt_cli.corpus.cleaning import has_empty_side
from nmt_cli.corpus.duplicates import pair_hash

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
