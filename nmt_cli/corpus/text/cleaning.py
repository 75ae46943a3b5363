"""Rules that leave out training pairs, also repeated ones, and counts of what each left out."""

import hashlib
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nmt_cli.files.lines import is_blank
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


RECORD = np.dtype([("high", "<u8"), ("low", "<u8"), ("index", "<u8")])
BUCKET_BITS = 10  # 10^9 pairs are 24 GB of records on disk, 24 MB in each of 1,024 buckets
RECORDS_IN_MEMORY = 1 << 17  # a few megabytes


def pair_hash(source: str, target: str) -> bytes:
    """Return a hash of 128 bits, so that in practice two different pairs never have the same."""
    # No text contains a line feed, so different pairs give different bytes.
    return hashlib.blake2b(f"{source}\n{target}".encode(), digest_size=16).digest()


class DuplicateFinder:
    """Takes the hashes of all pairs in order, then finds the pairs that repeat an earlier one.

    When the records exceed the memory limit, they are written to buckets on disk by the first bits
    of their hash. Equal records are in the same bucket, so each bucket is sorted by itself.
    """

    def __init__(self, directory: Path, records_in_memory: int = RECORDS_IN_MEMORY) -> None:
        self._directory = directory
        self._limit = records_in_memory * RECORD.itemsize
        self._records = bytearray()
        self._buckets: set[int] = set()

    def add(self, digest: bytes, index: int) -> None:
        """Take the hash of the pair ``index``."""
        self._records += digest + index.to_bytes(8, "little")
        if len(self._records) >= self._limit:
            self._spill()

    def repeated(self) -> Iterator[npt.NDArray[np.int64]]:
        """Yield the indices of pairs that are equal to an earlier one, in no particular order."""
        if not self._buckets:
            yield _later_ones(np.frombuffer(self._records, dtype=RECORD))
            return
        if self._records:
            self._spill()
        for bucket in sorted(self._buckets):
            path = self._path(bucket)
            yield _later_ones(np.fromfile(path, dtype=RECORD))
            path.unlink()
        self._buckets.clear()

    def _spill(self) -> None:
        records = np.frombuffer(bytes(self._records), dtype=RECORD)
        self._records.clear()
        buckets = (records["high"] >> np.uint64(64 - BUCKET_BITS)).astype(np.int64)
        order = np.argsort(buckets, kind="stable")
        present, starts = np.unique(buckets[order], return_index=True)
        for bucket, part in zip(present, np.split(order, starts[1:]), strict=True):
            self._buckets.add(int(bucket))
            with self._path(int(bucket)).open("ab") as stream:
                stream.write(records[part].tobytes())

    def _path(self, bucket: int) -> Path:
        return self._directory / f"hashes-{bucket:04d}"


class Marks:
    """One bit for each pair of a corpus."""

    def __init__(self, size: int) -> None:
        self._bits = np.zeros(size // 8 + 1, dtype=np.uint8)

    def __contains__(self, index: int) -> bool:
        return bool(self._bits[index >> 3] >> (index & 7) & 1)

    def add(self, indices: npt.NDArray[np.int64]) -> None:
        """Set the bits of all ``indices``."""
        np.bitwise_or.at(self._bits, indices >> 3, (1 << (indices & 7)).astype(np.uint8))


def _later_ones(records: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
    order = np.lexsort((records["index"], records["low"], records["high"]))
    records = records[order]
    high, low = records["high"], records["low"]
    same = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
    return records["index"][1:][same].astype(np.int64)
