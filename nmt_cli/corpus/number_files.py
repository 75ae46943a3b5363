"""Files of whole numbers of 2 or 4 bytes, which are memory-mapped to be read."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from nmt_cli.messages.errors import DamagedError

HEADER = struct.Struct("<8sIIQ40x")  # earlier versions wrote a checksum into the rest
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
