"""Finds exactly equal pairs; its memory hardly grows with the corpus (one bit for each pair)."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

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
