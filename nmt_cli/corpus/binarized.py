"""Sentences as token ids: in memory, or memory-mapped from files with 2 or 4 bytes for a number."""

import mmap
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from nmt_cli.messages.errors import DamagedError

HEADER = struct.Struct("<8sIIQ40x")
MAGIC = b"NMT-CLI\0"
VERSION = 1
DTYPES: dict[int, np.dtype[Any]] = {2: np.dtype("<u2"), 4: np.dtype("<u4")}

Numbers = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]


def dtype_holding(largest: int) -> np.dtype[Any]:
    """Return the smaller of the two types that can hold ``largest``."""
    return DTYPES[2] if largest < 1 << 16 else DTYPES[4]


class ArrayWriter:
    """Appends numbers to a file, and counts them."""

    def __init__(self, stream: BinaryIO, dtype: np.dtype[Any]) -> None:
        self._stream, self._dtype = stream, dtype
        self.count = 0

    def append(self, numbers: npt.NDArray[Any]) -> None:
        """Write more numbers; each must fit the type."""
        self._stream.write(numbers.astype(self._dtype).tobytes())
        self.count += len(numbers)


@contextmanager
def writing_numbers(path: Path, dtype: np.dtype[Any]) -> Iterator[ArrayWriter]:
    """Yield a writer of numbers to ``path``; the header comes last, when their count is known."""
    with path.open("wb") as stream:
        stream.write(bytes(HEADER.size))
        writer = ArrayWriter(stream, dtype)
        yield writer
        stream.seek(0)
        stream.write(HEADER.pack(MAGIC, VERSION, dtype.itemsize, writer.count))


def as_bytes(numbers: npt.NDArray[Any]) -> bytes:
    """Return the content of a file of a few numbers."""
    header = HEADER.pack(MAGIC, VERSION, numbers.itemsize, len(numbers))
    return header + numbers.astype(DTYPES[numbers.itemsize]).tobytes()


def map_numbers(path: Path) -> Numbers:
    """Return the numbers of ``path``, memory-mapped.

    Their checksum is in the manifest of their folder; here only the header is checked. Raises
    DamagedError if the file cannot be read or its header is wrong.
    """
    try:
        with path.open("rb") as stream:
            header = stream.read(HEADER.size)
        size = path.stat().st_size
    except OSError as error:
        raise DamagedError(f"{path} cannot be read: {error.strerror}.") from None
    if len(header) < HEADER.size or header[: len(MAGIC)] != MAGIC:
        raise DamagedError(f"{path} is damaged: its header is not that of a file of numbers.")
    _, version, itemsize, count = HEADER.unpack(header)
    if version != VERSION:
        raise DamagedError(f"{path} has format version {version}, this nmt-cli reads {VERSION}.")
    if itemsize not in DTYPES or size != HEADER.size + count * itemsize:
        raise DamagedError(f"{path} is damaged: its header and its {size:,} bytes disagree.")
    if count == 0:
        return np.empty(0, dtype=DTYPES[itemsize])
    return np.memmap(path, dtype=DTYPES[itemsize], mode="r", offset=HEADER.size, shape=(count,))


def leave_memory(*mapped: npt.NDArray[Any]) -> None:
    """Release the pages that were read of memory-mapped numbers; the next access reads them again.

    A pass over all of them then needs no more memory than a part. Other arrays stay as they are.
    """
    for numbers in mapped:
        if isinstance(numbers.base, mmap.mmap):
            numbers.base.madvise(mmap.MADV_DONTNEED)


BLOCK = 64  # sentences; RAM holds one offset of 8 bytes for each block
BLOCKS_AT_ONCE = 1 << 14
INDICES_AT_ONCE = 1 << 14

Indices = npt.NDArray[np.int64]


class Sentences:
    """Sentences of one side: their tokens one after the other, and how many tokens each has."""

    def __init__(self, tokens: Indices, lengths: Indices) -> None:
        self._tokens: Indices | None = tokens
        self.lengths = lengths

    @property
    def tokens(self) -> Indices:
        """The tokens of all sentences, each with its ``</s>``."""
        assert self._tokens is not None
        return self._tokens

    def __iter__(self) -> Iterator[Indices]:
        """Yield the tokens and the lengths."""
        yield self.tokens
        yield self.lengths

    def lists(self) -> Iterator[list[int]]:
        """Yield the tokens of each sentence."""
        tokens, ends = self.tokens.tolist(), np.cumsum(self.lengths).tolist()
        for start, end in pairwise([0, *ends]):
            yield tokens[start:end]

    def expect(self) -> None:
        """Let the system begin to read the tokens, if they are on a disk."""

    def parts(self, slices: Iterable[slice]) -> "Iterator[Sentences]":
        """Yield the sentences of each slice."""
        ends = np.concatenate([[0], np.cumsum(self.lengths)])
        for part in slices:
            yield Sentences(self.tokens[ends[part.start] : ends[part.stop]], self.lengths[part])


class SentencesOnDisk(Sentences):
    """Sentences of a text whose tokens are read when they are first used.

    So a rank reads only the parts that it computes.
    """

    def __init__(self, text: "BinarizedText", indices: Indices) -> None:
        self._text, self._indices, self._tokens = text, indices, None
        self.lengths = text.lengths[indices].astype(np.int64)

    @property
    def tokens(self) -> Indices:
        """The tokens of all sentences, each with its ``</s>``."""
        if self._tokens is None:
            self._tokens = self._text.read(self._starts, self.lengths)
        return self._tokens

    def expect(self) -> None:
        """Let the system begin to read the tokens, if they are on a disk."""
        self._text.expect(self._starts, self.lengths)

    def parts(self, slices: Iterable[slice]) -> Iterator[Sentences]:
        """Yield the sentences of each slice; what was not read before is not read now."""
        if self._tokens is not None:
            yield from super().parts(slices)
        else:
            yield from (SentencesOnDisk(self._text, self._indices[part]) for part in slices)

    @cached_property
    def _starts(self) -> Indices:
        return self._text.starts_of(self._indices)


class BinarizedText:
    """One side of a corpus on disk, memory-mapped: only sentences that are gathered are read."""

    def __init__(self, tokens: Numbers, lengths: Numbers) -> None:
        self._tokens, self.lengths = tokens, lengths
        self._block_starts = _starts_of_blocks(lengths)
        self.longest = int(lengths.max(initial=0))  # tokens, with the ``</s>``
        leave_memory(lengths)

    @classmethod
    def open(cls, directory: Path, name: str) -> "BinarizedText":
        """Map ``name``, such as train.source, of a folder whose checksums were verified before.

        Raises DamagedError if a file has a wrong header or the two files do not fit together.
        """
        tokens_path = directory / f"{name}.tokens"
        tokens = map_numbers(tokens_path)
        text = cls(tokens, map_numbers(directory / f"{name}.lengths"))
        if text.num_tokens != len(tokens):
            raise DamagedError(
                f"{tokens_path} has {len(tokens):,} tokens, but the lengths beside it add up to "
                f"{text.num_tokens:,}; it is damaged."
            )
        return text

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def num_tokens(self) -> int:
        """The number of tokens of all sentences, including each ``</s>``."""
        return int(self._block_starts[-1])

    def gather(self, indices: Indices) -> Sentences:
        """Return the sentences at ``indices``, in that order."""
        return SentencesOnDisk(self, indices)

    def starts_of(self, indices: Indices) -> Indices:
        """Return the token at which each of the sentences at ``indices`` starts."""
        parts = range(0, len(indices), INDICES_AT_ONCE)
        starts = [self._starts(indices[part : part + INDICES_AT_ONCE]) for part in parts]
        return np.concatenate([*starts, indices[:0]])

    def read(self, starts: Indices, lengths: Indices) -> Indices:
        """Return the tokens of sentences that start at ``starts`` and have these ``lengths``."""
        ends = np.cumsum(lengths)
        num_tokens = int(ends[-1]) if len(ends) else 0
        # Token t of the result is token t + shift on disk; a sentence has one shift.
        shifts = starts - (ends - lengths)
        places = np.arange(num_tokens) + np.repeat(shifts, lengths)
        return self._tokens[places].astype(np.int64)

    def expect(self, starts: Indices, lengths: Indices) -> None:
        """Let the system read what ``read`` of the same will need, all sentences at the same time.

        Otherwise each sentence that is not in memory is read when it is needed, one after the
        other, and the system reads megabytes around it.
        """
        mapped, size = self._tokens.base, self._tokens.itemsize
        if not isinstance(mapped, mmap.mmap):
            return  # there are no tokens
        pages = (HEADER.size + starts * size) // mmap.PAGESIZE * mmap.PAGESIZE
        num_bytes = HEADER.size + (starts + lengths) * size - pages
        for page, number in zip(pages.tolist(), num_bytes.tolist(), strict=True):
            mapped.madvise(mmap.MADV_WILLNEED, page, number)

    def _starts(self, indices: Indices) -> Indices:
        blocks, places = np.divmod(indices, BLOCK)
        neighbours = blocks[:, None] * BLOCK + np.arange(BLOCK)  # sentence block
        lengths = self.lengths[np.minimum(neighbours, len(self.lengths) - 1)].astype(np.int64)
        before = np.arange(BLOCK) < places[:, None]
        return self._block_starts[blocks] + (lengths * before).sum(axis=1)


class BinarizedWriter(NamedTuple):
    """Writes one side of a corpus, sentence after sentence."""

    tokens: ArrayWriter
    lengths: ArrayWriter

    def append(self, tokens: npt.NDArray[Any], lengths: npt.NDArray[Any]) -> None:
        """Write sentences: their tokens, each sentence with its ``</s>``, and their lengths."""
        self.tokens.append(tokens)
        self.lengths.append(lengths)


@contextmanager
def writing_binarized(
    directory: Path, name: str, vocabulary_size: int, longest: int
) -> Iterator[BinarizedWriter]:
    """Yield a writer of ``name``, such as train.source; no sentence may exceed ``longest``."""
    of_tokens, of_lengths = dtype_holding(vocabulary_size - 1), dtype_holding(longest)
    with (
        writing_numbers(directory / f"{name}.tokens", of_tokens) as tokens,
        writing_numbers(directory / f"{name}.lengths", of_lengths) as lengths,
    ):
        yield BinarizedWriter(tokens, lengths)


def _starts_of_blocks(lengths: Numbers) -> Indices:
    """Return the token at which each block of sentences starts, and the end of the last block."""
    num_blocks = -(-len(lengths) // BLOCK)
    starts = np.zeros(num_blocks + 1, dtype=np.int64)
    for first in range(0, num_blocks, BLOCKS_AT_ONCE):
        some = lengths[first * BLOCK : (first + BLOCKS_AT_ONCE) * BLOCK].astype(np.int64)
        sums = np.add.reduceat(some, np.arange(0, len(some), BLOCK))
        starts[first + 1 : first + 1 + len(sums)] = starts[first] + np.cumsum(sums)
    return starts
