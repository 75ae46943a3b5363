"""Rules that leave out training pairs, also repeated ones, and counts of what each left out."""

import hashlib
import unicodedata
import zlib
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nmt_cli.corpus.text.filters import TEXT_FILTERS
from nmt_cli.corpus.text.parallel_text import LineChunk
from nmt_cli.files.lines import is_blank

EMPTY, SCORES, HELD_OUT = "empty", "scores", "remove_held_out"
HELD_OUT_SENTENCES = "remove_held_out_sentences"
DUPLICATE, SAME_SOURCE = "duplicate", "remove_duplicate_sources"
SAME_TARGET = "remove_duplicate_targets"
TOO_LONG, TOO_SHORT, LENGTH_RATIO = "too_long", "too_short", "length_ratio"
OF_LENGTHS = (TOO_LONG, TOO_SHORT, LENGTH_RATIO)  # in pieces
# A pair is counted for the first rule that it breaks. Those that compare pairs with each other are
# the last ones, so that a pair is left out only for one that no rule about single pairs drops.
OF_HELD_OUT = (HELD_OUT, HELD_OUT_SENTENCES)
OF_REPEATED = (DUPLICATE, SAME_SOURCE, SAME_TARGET)
RULES = (EMPTY, SCORES, *TEXT_FILTERS, *OF_HELD_OUT, *OF_LENGTHS, *OF_REPEATED)
ALWAYS_COUNTED = (EMPTY, DUPLICATE, *OF_LENGTHS)
KEPT = -1  # other values are indices of RULES
COUNTED = -2  # the pair broke a rule, for which it was already counted
LISTED_LINES = 1000  # line numbers kept for each rule and corpus; the count includes all lines
EXAMPLES, LONGEST_EXAMPLE = 5, 200  # pairs shown for each filter and corpus; characters of a side


class PairLimits(NamedTuple):
    """The lengths that a pair may have, in pieces without the end of sentence."""

    longest: int
    shortest: int = 1
    ratio: float | None = None


def rules_broken(
    source_lengths: npt.NDArray[np.int64], target_lengths: npt.NDArray[np.int64], limits: PairLimits
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


class ListedPairs:
    """Counts some pairs of a corpus, and keeps the first line numbers and examples."""

    def __init__(self) -> None:
        self.count = 0
        self._lines: list[int] = []
        self._examples: list[dict[str, Any]] = []

    def add(self, places: npt.NDArray[np.intp], chunk: LineChunk) -> None:
        """Take the pairs at these places of ``chunk``."""
        if not len(places):
            return
        first_line = chunk.first_line
        self.count += len(places)
        self._lines += (first_line + places[: LISTED_LINES - len(self._lines)]).tolist()
        shown = places[: EXAMPLES - len(self._examples)].tolist()
        if shown:
            sources, targets, *_ = chunk.texts()
            for place in shown:
                sides = {"source": sources[place], "target": targets[place]}
                cut = {side: text[:LONGEST_EXAMPLE] for side, text in sides.items()}
                self._examples.append({"line": first_line + place, **cut})

    def as_manifest(self, *, has_examples: bool = True) -> dict[str, Any]:
        """Return the manifest's entry; without examples if there are none."""
        examples = {"examples": self._examples} if has_examples and self._examples else {}
        return {"count": self.count, "first_lines": self._lines, **examples}


class DroppedLines:
    """Counts the pairs that each rule dropped from one corpus, and lists the first of them."""

    def __init__(self) -> None:
        self._listed = {rule: ListedPairs() for rule in RULES}

    @property
    def counts(self) -> dict[str, int]:
        """The number of pairs that each rule dropped."""
        return {rule: listed.count for rule, listed in self._listed.items()}

    def add(self, broken: npt.NDArray[np.int8], chunk: LineChunk) -> None:
        """Count the pairs of ``chunk`` by the rule that each broke, not ``KEPT`` or ``COUNTED``."""
        for number in np.unique(broken[broken >= 0]).tolist():
            self._listed[RULES[number]].add(np.flatnonzero(broken == number), chunk)

    def as_manifest(self) -> dict[str, Any]:
        """Return the manifest's entry: for each rule the count, line numbers and examples.

        Rules about text that dropped nothing are left out. Pairs that are empty or too long are no
        examples.
        """
        return {
            rule: listed.as_manifest(has_examples=rule not in {EMPTY, TOO_LONG})
            for rule, listed in self._listed.items()
            if listed.count or rule in ALWAYS_COUNTED
        }


MOST_PAIRS = 1 << 18  # 40 MB of hashes; usual validation and test sets have a hundredth of that


class LettersOnly(dict[int, int | None]):
    """A table for ``str.translate``, which removes everything but letters and their marks."""

    def __missing__(self, code: int) -> int | None:
        self[code] = code if unicodedata.category(chr(code))[0] in "LM" else None
        return self[code]


LETTERS_ONLY = LettersOnly()
HASHED = b"abcdefghjlmnopqrstuvwxyz"
NOT_HASHED = bytes(code for code in range(256) if code not in HASHED)


def letters_of(text: str) -> str:
    """Return the letters of ``text`` in lower case; ``text`` itself if it has none."""
    return text.lower().translate(LETTERS_ONLY) or text


class HeldOut:
    """Hashes of held-out pairs, and which of them were not found in the training text so far."""

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        found = iter(pairs)
        chosen = [pair for pair in islice(found, MOST_PAIRS) if not any(map(is_blank, pair))]
        self.is_whole = next(found, None) is None
        self._hashes = {pair_hash(source, target) for source, target in chosen}
        self._of_letters = {_hash_of_letters(source, target) for source, target in chosen}
        sides = [[pair[side] for pair in chosen] for side in (0, 1)]
        self._sentences = [set(map(sentence_hash, side)) for side in sides]
        self._short = [set(map(_short_hash, side)) for side in sides]
        self._unmet, self._met_sentences = set(self._hashes), (set[bytes](), set[bytes]())

    def found(
        self, sources: Sequence[str], targets: Sequence[str], places: npt.NDArray[np.intp]
    ) -> "FoundHeldOut":
        """Return which of the training pairs, which are at ``places`` of a chunk, are held out.

        Only sentences with the short hash of a held-out sentence are hashed in full, which takes a
        fifth of the time.
        """
        if not self._hashes:
            return FoundHeldOut([], places[:0], ([], []), places[:0])
        equal, similar, sharing = [], [], set[int]()
        met = list[bytes](), list[bytes]()
        for side, texts in enumerate((sources, targets)):
            short, known = self._short[side], self._sentences[side]
            for number, text in enumerate(texts):
                if _short_hash(text) in short and (digest := sentence_hash(text)) in known:
                    met[side].append(digest)
                    sharing.add(number)
        for number in sorted(sharing):
            source, target = sources[number], targets[number]
            if _hash_of_letters(source, target) in self._of_letters:
                similar.append(number)
                equal.append(pair_hash(source, target))
        equal = [digest for digest in equal if digest in self._hashes]
        return FoundHeldOut(equal, places[similar], met, places[sorted(sharing)])

    def count(self, found: "FoundHeldOut") -> None:
        """Count what was found in more of the training text."""
        self._unmet.difference_update(found.equal)
        for met, digests in zip(self._met_sentences, found.sentences, strict=True):
            met.update(digests)

    @property
    def is_all_met(self) -> bool:
        """Whether every held-out pair was found in the training text."""
        return bool(self._hashes) and not self._unmet

    @property
    def met_sentences(self) -> list[tuple[int, int]]:
        """For each side, how many of its sentences the training text has too, and of how many."""
        sides = zip(self._met_sentences, self._sentences, strict=True)
        return [(len(met), len(all_of_them)) for met, all_of_them in sides]


class FoundHeldOut(NamedTuple):
    """Which of some training pairs are held out.

    Two texts are similar if they are equal by ``letters_of``.
    """

    equal: list[bytes]  # the hashes of the pairs that are equal to one that is held out
    similar: npt.NDArray[np.intp]  # places of pairs that are similar to one that is held out
    sentences: tuple[list[bytes], list[bytes]]  # the hashes of similar sources and targets
    sharing: npt.NDArray[np.intp]  # places of the pairs with such a source or target


def _hash_of_letters(source: str, target: str) -> bytes:
    return pair_hash(letters_of(source), letters_of(target))


def _short_hash(text: str) -> int:
    """Return a hash that is equal for texts with equal ``letters_of``, if they have letters.

    It is that of the ASCII letters but i and k, because only these two are also the lower case of
    other letters (the dotted I and the sign of Kelvin).
    """
    return zlib.crc32(text.encode().lower().translate(None, NOT_HASHED))


RECORD = np.dtype([("high", "<u8"), ("low", "<u8"), ("index", "<u8")])
SCORED_RECORD = np.dtype([*RECORD.descr, ("worse", "<f8")])  # the lower, the better is the pair
BUCKET_BITS = 10  # 10^9 pairs are 24 GB of records on disk, 24 MB in each of 1,024 buckets
RECORDS_IN_MEMORY = 1 << 17  # a few megabytes


def hash_records(
    rule: str,
    sources: Sequence[str],
    targets: Sequence[str],
    indices: npt.NDArray[np.int64],
    scores: npt.NDArray[np.float64] | None = None,
) -> npt.NDArray[np.void]:
    """Return a record for each pair: a hash of what ``rule`` compares, and the pair's index.

    If ``scores`` are given, the record has the negative score too.
    """
    records = np.empty(len(indices), dtype=RECORD if scores is None else SCORED_RECORD)
    if rule == DUPLICATE:
        digests = b"".join(map(pair_hash, sources, targets))
    else:
        digests = b"".join(map(_digest, sources if rule == SAME_SOURCE else targets))
    hashes = np.frombuffer(digests, dtype="<u8").reshape(-1, 2)
    records["high"], records["low"], records["index"] = hashes[:, 0], hashes[:, 1], indices
    if scores is not None:
        records["worse"] = -scores
    return records


def pair_hash(source: str, target: str) -> bytes:
    """Return a hash of 128 bits, so that in practice two different pairs never have the same."""
    # No text contains a line feed, so different pairs give different bytes.
    return _digest(f"{source}\n{target}")


def sentence_hash(text: str) -> bytes:
    """Return a hash that is equal for texts with equal ``letters_of``."""
    return _digest(letters_of(text))


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


class DuplicateFinder:
    """Takes the records of all pairs in order, so that those with the same hash are found together.

    When the records exceed the memory limit, they are written to buckets on disk by the first bits
    of their hash. Equal records are in the same bucket, so each bucket is sorted by itself.
    """

    def __init__(
        self,
        directory: Path,
        records_in_memory: int = RECORDS_IN_MEMORY,
        dtype: np.dtype[np.void] = RECORD,
    ) -> None:
        self._directory, self._limit, self.dtype = directory, records_in_memory, dtype
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
        return np.concatenate([*self._records, np.empty(0, dtype=self.dtype)])

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


class RepeatedPairs(NamedTuple):
    """The indices of pairs that have the same hash as other pairs."""

    best: npt.NDArray[np.int64]  # of each hash, the one with the best score, or the first of them
    others: npt.NDArray[np.int64]


def repeated_in(
    part: "npt.NDArray[np.void] | Path", dtype: np.dtype[np.void] = RECORD
) -> RepeatedPairs:
    """Return the pairs of a part that repeat each other; remove the file of the part."""
    if isinstance(part, Path):
        records = np.fromfile(part, dtype=dtype)
        part.unlink()
    else:
        records = part
    # Records come in the order of the pairs, and the sort keeps it for equal hashes and scores.
    worse = (records["worse"],) if dtype == SCORED_RECORD else ()
    records = records[np.lexsort((*worse, records["low"], records["high"]))]
    high, low = records["high"], records["low"]
    same = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
    begins = same.copy()
    begins[1:] &= ~same[:-1]
    indices = records["index"].astype(np.int64)
    return RepeatedPairs(indices[:-1][begins], indices[1:][same])


class BitSet:
    """One bit for each pair of a corpus; it grows as pairs are added."""

    def __init__(self, size: int = 0) -> None:
        self._bits = np.zeros(size // 8 + 1, dtype=np.uint8)

    def add(self, indices: npt.NDArray[np.int64]) -> None:
        """Set the bits of all ``indices``."""
        self._hold(int(indices.max(initial=0)))
        np.bitwise_or.at(self._bits, indices >> 3, (1 << (indices & 7)).astype(np.uint8))

    def have(self, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return the bits of ``indices``."""
        self._hold(int(indices.max(initial=0)))
        return (self._bits[indices >> 3] >> (indices & 7).astype(np.uint8) & 1).astype(np.bool_)

    def _hold(self, index: int) -> None:
        if index >> 3 >= len(self._bits):
            longer = np.zeros(max((index >> 3) + 1, len(self._bits) * 5 // 4), dtype=np.uint8)
            longer[: len(self._bits)] = self._bits
            self._bits = longer
