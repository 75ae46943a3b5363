"""Arrays of numbers on disk: a header and a flat array, which is read by memory-mapping.

64 bytes  magic, format version, bytes per number, count of numbers; the rest is not used
then      count little-endian uint16 or uint32
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from nmt_cli.errors import DamagedError

HEADER = struct.Struct("<8sIIQ40x")  # earlier versions wrote a checksum into the rest
MAGIC = b"NMT-CLI\0"
VERSION = 1
DTYPES: dict[int, np.dtype[Any]] = {2: np.dtype("<u2"), 4: np.dtype("<u4")}

Numbers = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]


def dtype_holding(largest: int) -> np.dtype[Any]:
    """Return the smaller of the two types that can hold ``largest``."""
    return DTYPES[2] if largest < 1 << 16 else DTYPES[4]


class ArrayWriter:
    """Appends numbers to a file; call ``write_header`` at the end, when the count is known."""

    def __init__(self, stream: BinaryIO, dtype: np.dtype[Any]) -> None:
        self._stream, self._dtype = stream, dtype
        self.count = 0
        stream.write(bytes(HEADER.size))

    def append(self, numbers: npt.NDArray[Any]) -> None:
        """Write more numbers; each must fit the type."""
        self._stream.write(numbers.astype(self._dtype).tobytes())
        self.count += len(numbers)

    def write_header(self) -> None:
        """Write the header, for which the constructor left room."""
        self._stream.seek(0)
        self._stream.write(HEADER.pack(MAGIC, VERSION, self._dtype.itemsize, self.count))


@contextmanager
def writing_numbers(path: Path, dtype: np.dtype[Any]) -> Iterator[ArrayWriter]:
    """Yield a writer of numbers to ``path``."""
    with path.open("wb") as stream:
        writer = ArrayWriter(stream, dtype)
        yield writer
        writer.write_header()


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
