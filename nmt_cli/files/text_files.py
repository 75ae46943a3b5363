"""Files of text, plain or compressed: open them, measure them, and write compressed ones.

Small files are read whole; one that is far too large is refused.
"""

import io
import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from nmt_cli.files.output_streams import STANDARD_INPUT
from nmt_cli.messages.errors import DamagedError, UserError
from nmt_cli.messages.proposals import command, unused_name, where_missing

LARGEST_FILE = 50 << 20  # bytes, of files that are read whole
READ_AT_ONCE = 1 << 18  # bytes
COMPRESSED_AT_ONCE = 1 << 14  # bytes; smaller reads make the estimate of TextSize more precise

# Compressed text under another name would be read as one or two very odd lines.
COMPRESSED = {b"\x1f\x8b\x08": ".gz", b"\xfd7zXZ\x00": ".xz", b"\x28\xb5\x2f\xfd": ".zst"}
SUFFIXES = frozenset(COMPRESSED.values())
OFFICE_MEMBERS = frozenset({"[Content_Types].xml", "mimetype"})  # of Open XML, OpenDocument, EPUB
ZIP, BZIP2 = b"PK\x03\x04", re.compile(rb"BZh[1-9]\x31\x41\x59\x26\x53\x59")


@contextmanager
def open_text(path: Path, *, may_be_archive: bool = False) -> Iterator[BinaryIO]:
    """Yield the decompressed bytes of a plain, .gz, .xz or .zst file.

    A zip file is no text; with ``may_be_archive`` its bytes are yielded. Raises UserError if the
    file cannot be opened, is compressed in another way or has the wrong suffix. Reading the stream
    raises UserError if the file is damaged or cannot be read.
    """
    with _open(path) as file:
        _refuse_other_compression(file, path, may_be_archive=may_be_archive)
        counted = _Counted(file, COMPRESSED_AT_ONCE if path.suffix in SUFFIXES else READ_AT_ONCE)
        stream = _decompressed(counted, path)
        yield cast(BinaryIO, io.BufferedReader(_Named(stream, path, counted), READ_AT_ONCE))


def bytes_read(stream: BinaryIO) -> int:
    """Return how many bytes a stream of ``open_text`` has read from its file, still compressed.

    Streams that are made of such a stream have its number as ``raw.bytes_read``.
    """
    raw = cast(io.BufferedReader, stream).raw
    bytes_read: tuple[int, int] = getattr(raw, "bytes_read", (0, 0))
    return bytes_read[1]


class TextSize:
    """The number of bytes of text in a stream; create it before the first read.

    The number is exact for a plain file, also as stdin. For a compressed file it is an estimate
    that improves as more is read. For a pipe or a terminal it is unknown.
    """

    def __init__(self, stream: BinaryIO) -> None:
        named = getattr(stream, "raw", None)
        self._named = named if isinstance(named, _Named) else None
        self._file_bytes: int | None = None  # None for a pipe or terminal
        with suppress(OSError):  # a stream without a file descriptor
            descriptor = (self._named.file if self._named else stream).fileno()
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode):
                start = 0 if self._named else os.lseek(descriptor, 0, os.SEEK_CUR)
                self._file_bytes = status.st_size - start

    def expected(self) -> int | None:
        """Return the number of bytes of the whole text, exact or estimated; None if unknown."""
        if self._file_bytes is None or self._named is None:
            return self._file_bytes
        text_bytes, compressed_bytes = self._named.bytes_read
        return round(self._file_bytes * text_bytes / max(1, compressed_bytes))


@contextmanager
def compressed(stream: BinaryIO, path: Path) -> Iterator[BinaryIO]:
    """Yield a file that compresses into ``stream`` if the suffix of ``path`` asks for it.

    Otherwise yield ``stream`` itself. Equal text gives equal bytes: the header that gzip writes
    holds neither time nor name. Raises UserError for .bz2 and .zip.
    """
    if path.suffix in {".bz2", ".zip"}:
        raise UserError(f"{path} cannot be written: compressed output ends in .gz, .xz or .zst.")
    if path.suffix not in SUFFIXES:
        yield stream
        return
    from nmt_cli.files.compression import compressing  # few texts need it

    with compressing(stream, path.suffix) as packed:
        packed.write(b"")  # without it zstd writes no frame for an empty text
        yield packed


def standard_input() -> BinaryIO:
    """Return a stream of the bytes of stdin. Raises UserError if stdin is closed.

    It is not ``sys.stdin.buffer``: Python cannot exit while another thread reads from that.
    """
    if sys.stdin is None:
        raise UserError("standard input is closed; give the name of a file instead.")
    try:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except OSError:  # a test replaced stdin by an object without descriptor
        return sys.stdin.buffer


def is_read_again(path: Path) -> bool:
    """Return whether ``path`` is a file that can be read from its begin again; stdin is none."""
    return path != STANDARD_INPUT and path.is_file()


def _open(path: Path) -> BinaryIO:
    if path == STANDARD_INPUT:
        return standard_input()
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise UserError(f"{path} not found{where_missing(path)}.") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a directory, not a text file.") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise UserError(f"{path} cannot be read: {_reason(error)}.") from None


def _refuse_other_compression(file: BinaryIO, path: Path, *, may_be_archive: bool) -> None:
    """Raise UserError if the name of a compressed file is wrong, or we cannot decompress it."""
    if not is_read_again(path):  # peeking into a pipe would wait for its writer
        return
    try:
        start = cast(io.BufferedReader, file).peek(16)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {_reason(error)}.") from None
    if start.startswith(ZIP) and not may_be_archive:
        raise UserError(_how_to_unzip(path))
    if BZIP2.match(start):
        unpack = f"{command('bzip2', '-dc', path)} > {command(_unpacked(path))}"
        raise UserError(f"{path} is compressed by bzip2; unpack it: {unpack}")
    for magic, suffix in COMPRESSED.items():
        if start.startswith(magic) and path.suffix not in SUFFIXES:
            raise UserError(f"{path} is compressed; its name must end in {suffix}.")


def _how_to_unzip(path: Path) -> str:
    import zipfile

    num_files = 1
    with suppress(zipfile.BadZipFile, OSError), zipfile.ZipFile(path) as archive:
        num_files = sum(not member.is_dir() for member in archive.infolist())
        if not OFFICE_MEMBERS.isdisjoint(archive.namelist()):
            return (
                f"{path} is an office document, not text; save it from its program as text in "
                "UTF-8, or a table as CSV in UTF-8."
            )
    if num_files > 1:
        unpack = command("unzip", "-d", _unpacked(path), path)
        return f"{path} is a zip archive of {num_files:,} files; unpack it: {unpack}"
    unpack = f"{command('unzip', '-p', path)} > {command(_unpacked(path))}"
    return f"{path} is a zip archive; unpack it: {unpack}"


def _unpacked(path: Path) -> Path:
    name = path.stem if path.suffix in {".zip", ".bz2"} else f"unpacked-{path.name}"
    return unused_name(path.with_name(name))


class _Counted:
    """Passes the bytes of a file to a decompressor and counts them."""

    def __init__(self, file: BinaryIO, at_once: int) -> None:
        self._file, self._at_once = file, at_once
        self.fileno, self.num_bytes = file.fileno, 0

    def read(self, size: int) -> bytes:
        chunk = self._file.read(min(size, self._at_once))
        self.num_bytes += len(chunk)
        return chunk


def _decompressed(counted: _Counted, path: Path) -> BinaryIO:
    stream = cast(BinaryIO, counted)
    if path.suffix not in SUFFIXES:
        return stream
    from nmt_cli.files.compression import decompressing  # few texts need it

    return decompressing(stream, path.suffix)


class _Named(io.RawIOBase):
    """Reads a stream; its errors name the file."""

    def __init__(self, stream: BinaryIO, path: Path, file: _Counted) -> None:
        self._stream, self.name, self.file = stream, str(path), file
        # Text bytes and the file bytes they came from: one tuple, as another thread may read it.
        self.bytes_read = (0, 0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        try:
            chunk = self._stream.read(len(view))
        except EOFError as error:
            raise _damaged(Path(self.name), _reason(error)) from None
        except OSError as error:
            raise UserError(f"{self.name} cannot be read: {_reason(error)}.") from None
        view[: len(chunk)] = chunk
        self.bytes_read = (self.bytes_read[0] + len(chunk), self.file.num_bytes)
        return len(chunk)


def _damaged(path: Path, reason: str) -> UserError:
    return UserError(
        f"{path} is damaged or not a {path.suffix} file: {reason}. "
        "Get the file again, or correct its name."
    )


def _reason(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text.rstrip(".")


SAMPLE = 4096  # bytes
# A byte order mark is conclusive: no UTF-8 text begins with these bytes.
MARKS = {
    b"\xff\xfe\0\0": "UTF-32",
    b"\0\0\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
# Without a mark, UTF-16 is recognized by Latin letters, whose high bytes are NUL.
LEAST_NULS = 0.3  # share of the high bytes
FEWEST_NULS = 4  # a line of UTF-8 may hold some


def other_encoding(path: Path) -> str | None:
    """Return iconv's name for the encoding of ``path``; None if it is UTF-8 or not recognized.

    Returns None also if the file cannot be read: the function that reads it next raises that error.
    """
    try:
        with open_text(path) as stream:
            return encoding_of(stream.read(SAMPLE))
    except UserError:
        return None


def encoding_of(sample: bytes) -> str | None:
    """Return iconv's name for the encoding of a text that begins with ``sample``, or None."""
    for mark, name in MARKS.items():
        if sample.startswith(mark):
            return name
    nuls = [sample[place::2].count(0) for place in (0, 1)]
    for name, high, low in (("UTF-16LE", nuls[1], nuls[0]), ("UTF-16BE", nuls[0], nuls[1])):
        if high >= FEWEST_NULS and high > LEAST_NULS * len(sample) / 2 and low < high / 10:
            return name
    return None


# In encodings such as UTF-7 and punycode, some of this means something else.
ASCII = bytes(range(32, 127)).replace(b"\\", b"") + rb" +AGE- \x41 \u0041 .xn--4ca. ~{~}"


def extends_ascii(encoding: str) -> bool:
    """Return whether Python has a text encoding of this name in which all of ASCII is itself.

    Marks of formats are found in such texts only, and it takes linear time to decode them.
    """
    try:
        return ASCII.decode(encoding) == ASCII.decode()
    except (LookupError, ValueError):
        return False


def read_content(path: Path, question: str = "") -> bytes:
    """Return the bytes of a file.

    Raises UserError if it cannot be read or is larger than ``LARGEST_FILE``; then the message ends
    with ``question``, such as "; is it a vocabulary?".
    """
    try:
        with standard_input() if path == STANDARD_INPUT else path.open("rb") as stream:
            content = stream.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        raise UserError(f"{path} not found{where_missing(path)}.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    if len(content) > LARGEST_FILE:
        raise UserError(f"{path} is larger than {LARGEST_FILE >> 20} MB{question or '.'}")
    return content


def decoded(content: bytes, path: Path) -> str:
    """Return the content of ``path`` as text; raises DamagedError if it is not UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise DamagedError(f"{path} is not UTF-8 text; it is damaged.") from None


def read_packed_text(path: Path) -> str:
    """Return the text of a plain, .gz, .xz or .zst file.

    Raises UserError if it cannot be read, is too large or is no UTF-8.
    """
    with open_text(path) as stream:
        content = stream.read(LARGEST_FILE + 1)
    if (name := encoding_of(content[:SAMPLE])) is not None:
        raise UserError(f"{path} is {name} text; convert it to UTF-8.")
    if len(content) > LARGEST_FILE:
        raise UserError(f"{path} has more than {LARGEST_FILE >> 20:,} MiB of text.")
    return decoded(content, path)


def read_text(path: Path) -> str:
    """Return the text of a file.

    Raises UserError if it cannot be read or is too large, DamagedError if it is not UTF-8.
    """
    return decoded(read_content(path), path)
