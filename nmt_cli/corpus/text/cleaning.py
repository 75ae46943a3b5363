"""Rules that leave out training pairs, also repeated ones, and counts of what each left out."""

import hashlib
import zlib
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nmt_cli.files.lines import is_blank
from nmt_cli.recipe.data_config import DataConfig

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

    def add(self, broken: npt.NDArray[np.int8], first_line: int) -> None:
        """Count the pairs of adjacent lines by the rule that each broke; others are ``KEPT``."""
        for number in np.unique(broken[broken != KEPT]).tolist():
            rule, places = RULES[number], np.flatnonzero(broken == number)
            self.counts[rule] += len(places)
            listed = self._lines[rule]
            listed += (first_line + places[: LISTED_LINES - len(listed)]).tolist()

    def facts(self) -> dict[str, Any]:
        """Return the manifest's entry: for each rule the count and the first line numbers."""
        return {
            rule: {"count": self.counts[rule], "first_lines": self._lines[rule]} for rule in RULES
        }


MOST_PAIRS = 1 << 18  # 30 MB of hashes; usual validation and test sets have a hundredth of that


class HeldOut:
    """Hashes of held-out pairs, and which of them were not found in the training text so far."""

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        chosen = [pair for pair in islice(pairs, MOST_PAIRS) if not has_empty_side(*pair)]
        self._hashes = {pair_hash(source, target) for source, target in chosen}
        self._sources = {_short_hash(source) for source, _ in chosen}
        self._unmet = set(self._hashes)

    def found(self, sources: Sequence[str], targets: Sequence[str]) -> list[bytes]:
        """Return the hashes of the training pairs that are held out, one for each such pair.

        Only pairs with a held-out source are hashed, in a fifth of the time.
        """
        if not self._sources:
            return []
        known, hashes = self._sources, []
        for source, target in zip(sources, targets, strict=True):
            if _short_hash(source) in known:
                hashes.append(pair_hash(source, target))
        return [digest for digest in hashes if digest in self._hashes]

    def count(self, found: Iterable[bytes]) -> None:
        """Count the pairs with these hashes as found in the training text."""
        self._unmet.difference_update(found)

    @property
    def is_all_met(self) -> bool:
        """Whether every held-out pair was found in the training text."""
        return bool(self._hashes) and not self._unmet


def _short_hash(text: str) -> int:
    return zlib.crc32(text.encode())


RECORD = np.dtype([("high", "<u8"), ("low", "<u8"), ("index", "<u8")])
BUCKET_BITS = 10  # 10^9 pairs are 24 GB of records on disk, 24 MB in each of 1,024 buckets
RECORDS_IN_MEMORY = 1 << 17  # a few megabytes


def hash_records(
    sources: Sequence[str], targets: Sequence[str], indices: npt.NDArray[np.int64]
) -> npt.NDArray[np.void]:
    """Return a record for each pair: its hash, and its index in the corpus."""
    records = np.empty(len(indices), dtype=RECORD)
    digests = b"".join(map(pair_hash, sources, targets))
    hashes = np.frombuffer(digests, dtype="<u8").reshape(-1, 2)
    records["high"], records["low"], records["index"] = hashes[:, 0], hashes[:, 1], indices
    return records


def pair_hash(source: str, target: str) -> bytes:
    """Return a hash of 128 bits, so that in practice two different pairs never have the same."""
    # No text contains a line feed, so different pairs give different bytes.
    return hashlib.blake2b(f"{source}\n{target}".encode(), digest_size=16).digest()


class DuplicateFinder:
    """Takes the records of all pairs in order, then finds the pairs that repeat an earlier one.

    When the records exceed the memory limit, they are written to buckets on disk by the first bits
    of their hash. Equal records are in the same bucket, so each bucket is sorted by itself.
    """

    def __init__(self, directory: Path, records_in_memory: int = RECORDS_IN_MEMORY) -> None:
        self._directory, self._limit = directory, records_in_memory
        self._records: list[npt.NDArray[np.void]] = []
        self._num_held = 0
        self._buckets: set[int] = set()

    def add(self, records: npt.NDArray[np.void]) -> None:
        """Take the records of more pairs."""
        self._records.append(records)
        self._num_held += len(records)
        if self._num_held >= self._limit:
            self._spill()

    def parts(self) -> list["npt.NDArray[np.void] | Path"]:
        """Return the records in parts, so that equal ones are in the same part.

        A part is for ``repeated_in``, and is in memory or in a file.
        """
        if not self._buckets:
            return [self._held()]
        if self._num_held:
            self._spill()
        return [self._path(bucket) for bucket in sorted(self._buckets)]

    def _held(self) -> npt.NDArray[np.void]:
        return np.concatenate([*self._records, np.empty(0, dtype=RECORD)])

    def _spill(self) -> None:
        records = self._held()
        self._records.clear()
        self._num_held = 0
        buckets = (records["high"] >> np.uint64(64 - BUCKET_BITS)).astype(np.uint16)
        order = np.argsort(buckets, kind="stable")
        records, counts = records[order], np.bincount(buckets, minlength=1 << BUCKET_BITS)
        ends = np.cumsum(counts)
        for bucket in np.flatnonzero(counts).tolist():
            self._buckets.add(bucket)
            with self._path(bucket).open("ab", buffering=0) as stream:
                stream.write(records[ends[bucket] - counts[bucket] : ends[bucket]].tobytes())

    def _path(self, bucket: int) -> Path:
        return self._directory / f"hashes-{bucket:04d}"


def repeated_in(part: "npt.NDArray[np.void] | Path") -> npt.NDArray[np.int64]:
    """Return the indices of pairs that are equal to an earlier one; remove the file of the part."""
    if isinstance(part, Path):
        records = np.fromfile(part, dtype=RECORD)
        part.unlink()
    else:
        records = part
    # Records come in the order of the pairs, and the sort by both halves of the hash keeps it.
    records = records[np.lexsort((records["low"], records["high"]))]
    high, low = records["high"], records["low"]
    same = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
    return records["index"][1:][same].astype(np.int64)


class Marks:
    """One bit for each pair of a corpus."""

    def __init__(self, size: int) -> None:
        self._bits = np.zeros(size // 8 + 1, dtype=np.uint8)

    def __getitem__(self, part: slice) -> npt.NDArray[np.bool_]:
        """Return the bits of adjacent pairs."""
        first = part.start >> 3
        bits = np.unpackbits(self._bits[first : (part.stop + 7) >> 3], bitorder="little")
        return bits[part.start - 8 * first : part.stop - 8 * first].astype(np.bool_)

    def add(self, indices: npt.NDArray[np.int64]) -> None:
        """Set the bits of all ``indices``."""
        np.bitwise_or.at(self._bits, indices >> 3, (1 << (indices & 7)).astype(np.uint8))
