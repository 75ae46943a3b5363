"""Reads and writes lines of text. Only a line feed separates lines.

Python's own text readers also split at CR, VT, FF, U+0085, U+2028 and others, or crash on a bad
byte. One extra line would shift all later lines of a parallel corpus against their translations.
"""

import gzip
import io
import lzma
import os
import re
import stat
import sys
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from nmt_cli.errors import UserError
from nmt_cli.missing_paths import expansion_hint
from nmt_cli.proposed_commands import command, unused_name

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
REPLACEMENT = "\ufffd"
LONGEST_LINE = 1 << 26  # bytes; nobody writes such a line, but /dev/zero has one that never ends
READ_AT_ONCE = 1 << 18  # bytes
COMPRESSED_AT_ONCE = 1 << 14  # bytes; smaller reads make the estimate of TextSize more precise
XZ_END = b"YZ"

# The first bytes of compressed files. Under another suffix they would be read as garbled text.
COMPRESSED = {b"\x1f\x8b\x08": ".gz", b"\xfd7zXZ\x00": ".xz", b"\x28\xb5\x2f\xfd": ".zst"}
SUFFIXES = frozenset(COMPRESSED.values())
ZIP, BZIP2 = b"PK\x03\x04", re.compile(rb"BZh[1-9]\x31\x41\x59\x26\x53\x59")
DECOMPRESSION_ERRORS = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, zstd.ZstdError)
# A character that is neither white space nor zero-width; \s matches what str.isspace accepts.
VISIBLE = re.compile("[^\\s\u200b-\u200f\u2060\ufeff]")
LINE_BREAKING = str.maketrans(
    dict.fromkeys("\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029\x00", " "),
)


class Line(NamedTuple):
    """The text of a line, and what was cut from it or repaired in it."""

    text: str
    carriage_return: bool  # whether one was cut before the line feed
    newline: bool  # false only for a last line that does not end in a line feed
    replaced: int  # bad byte sequences that became U+FFFD
    byte_order_mark: bool  # whether one was cut, which happens on the first line only


def read_lines(stream: BinaryIO) -> Iterator[Line]:
    """Yield the lines of ``stream`` as they arrive.

    Raises UserError if a line is longer than ``LONGEST_LINE``.
    """
    number = 0
    while raw := stream.readline(LONGEST_LINE):
        number += 1
        newline = raw.endswith(b"\n")
        if not newline and len(raw) == LONGEST_LINE:
            raise _endless(stream, number)
        byte_order_mark = number == 1 and raw.startswith(BYTE_ORDER_MARK)
        if byte_order_mark:
            raw = raw[len(BYTE_ORDER_MARK) :]
        if newline:
            raw = raw[:-1]
        carriage_return = raw.endswith(b"\r")
        if carriage_return:
            raw = raw[:-1]
        text, replaced = _decode(raw)
        yield Line(text, carriage_return, newline, replaced, byte_order_mark)


class LineTexts:
    """The ``text`` of each line that ``read_lines`` would yield, read and decoded in blocks.

    This takes a tenth of the time of ``read_lines``. ``num_invalid`` counts the lines with bad
    bytes that were read so far. Iterating raises UserError if a line is longer than
    ``LONGEST_LINE``.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._num_lines = stream, 0
        self.num_invalid = 0

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._blocks())

    def _blocks(self) -> Iterator[list[str]]:
        begun = bytearray()  # a line whose end is not read yet
        more = True
        while more:
            block = self._stream.read(READ_AT_ONCE)
            more = len(block) == READ_AT_ONCE  # a terminal reports its end only once
            ended, newline, rest = block.rpartition(b"\n")
            if len(begun) + (block.index(b"\n") if newline else len(rest)) >= LONGEST_LINE:
                raise _endless(self._stream, self._num_lines + 1)
            if newline:
                yield self._texts(bytes(begun + ended))
                begun.clear()
            begun += rest
        if begun:
            yield self._texts(bytes(begun))

    def _texts(self, block: bytes) -> list[str]:
        if self._num_lines == 0:
            block = block.removeprefix(BYTE_ORDER_MARK)
        try:
            texts = block.decode().split("\n")
        except UnicodeDecodeError:
            decoded = [_decode(raw) for raw in block.split(b"\n")]
            texts = [text for text, _ in decoded]
            self.num_invalid += sum(replaced > 0 for _, replaced in decoded)
        self._num_lines += len(texts)
        return [text.removesuffix("\r") for text in texts] if b"\r" in block else texts


def is_blank(text: str) -> bool:
    """Return whether there is nothing to translate: only white space and zero-width characters."""
    return VISIBLE.search(text) is None


def one_line(text: str) -> str:
    """Return ``text`` with a space for each character that some program reads as a line end."""
    return text.translate(LINE_BREAKING)


@contextmanager
def open_text(path: Path) -> Iterator[BinaryIO]:
    """Yield the decompressed bytes of a plain, .gz, .xz or .zst file.

    Raises UserError if the file cannot be opened, is compressed in another way or has the wrong
    suffix. Reading the stream raises UserError if the file is damaged or cannot be read.
    """
    with _open(path) as file:
        _refuse_other_compression(file, path)
        counted = _Counted(file, COMPRESSED_AT_ONCE if path.suffix in SUFFIXES else READ_AT_ONCE)
        stream = _decompressed(file, counted, path)
        yield cast(BinaryIO, io.BufferedReader(_Named(stream, path, counted), READ_AT_ONCE))


def bytes_read(stream: BinaryIO) -> int:
    """Return how many bytes a stream of ``open_text`` has read from its file, still compressed."""
    named = cast(io.BufferedReader, stream).raw
    return named.file.num_bytes if isinstance(named, _Named) else 0


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
        return round(self._file_bytes * self._named.num_bytes / max(1, self._named.file.num_bytes))


@contextmanager
def compressed(stream: BinaryIO, path: Path) -> Iterator[BinaryIO]:
    """Yield a file that compresses into ``stream`` if the suffix of ``path`` asks for it.

    Otherwise yield ``stream`` itself. Equal text gives equal bytes: the header that gzip writes
    holds neither time nor name. Raises UserError for .bz2 and .zip.
    """
    packed: Any
    if path.suffix == ".gz":
        packed = gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0)
    elif path.suffix == ".xz":
        packed = lzma.LZMAFile(stream, "w")  # noqa: SIM115 - closed below
    elif path.suffix == ".zst":
        packed = zstd.ZstdFile(stream, "w")
    elif path.suffix in {".bz2", ".zip"}:
        raise UserError(f"{path} cannot be written: compressed output ends in .gz, .xz or .zst.")
    else:
        yield stream
        return
    with packed:
        packed.write(b"")  # without it zstd writes no frame for an empty text
        yield packed


def _decode(raw: bytes) -> tuple[str, int]:
    """Return the text and how many bad byte sequences became U+FFFD."""
    try:
        return raw.decode(), 0
    except UnicodeDecodeError:
        text = raw.decode(errors="replace")
        # A U+FFFD that the input itself holds is valid UTF-8, so it is not part of a bad sequence.
        return text, text.count(REPLACEMENT) - raw.count(REPLACEMENT.encode())


def _open(path: Path) -> io.BufferedReader:
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise UserError(f"{path} not found{expansion_hint(path)}.") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a directory, not a text file.") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise UserError(f"{path} cannot be read: {_reason(error)}.") from None


def _refuse_other_compression(file: io.BufferedReader, path: Path) -> None:
    """Raise UserError if the name of a compressed file is wrong, or we cannot decompress it."""
    if not path.is_file():  # peeking into a pipe would wait for its writer
        return
    try:
        start = file.peek(16)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {_reason(error)}.") from None
    if start.startswith(ZIP):
        raise UserError(_how_to_unzip(path))
    if BZIP2.match(start):
        unpack = f"{command('bzip2', '-dc', path)} > {command(_unpacked(path))}"
        raise UserError(f"{path} is compressed by bzip2; unpack it: {unpack}")
    for magic, suffix in COMPRESSED.items():
        if start.startswith(magic) and path.suffix not in SUFFIXES:
            raise UserError(f"{path} is compressed; its name must end in {suffix}.")


def _how_to_unzip(path: Path) -> str:
    num_files = 1
    with suppress(zipfile.BadZipFile, OSError), zipfile.ZipFile(path) as archive:
        num_files = sum(not member.is_dir() for member in archive.infolist())
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


def _decompressed(file: BinaryIO, counted: _Counted, path: Path) -> BinaryIO:
    stream = cast(BinaryIO, counted)
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.GzipFile(fileobj=stream))
    if path.suffix == ".xz":
        _refuse_cut_xz(file, path)
        return cast(BinaryIO, lzma.LZMAFile(stream, format=lzma.FORMAT_XZ))
    if path.suffix == ".zst":
        return cast(BinaryIO, zstd.ZstdFile(stream))
    return stream


def _refuse_cut_xz(file: BinaryIO, path: Path) -> None:
    """Raise UserError if the file does not end as .xz must; lzma ignores garbage at the end."""
    if not file.seekable():
        return
    file.seek(0, os.SEEK_END)
    file.seek(max(0, file.tell() - 4096))
    if not file.read().rstrip(b"\0").endswith(XZ_END):
        raise _damaged(path, "it does not end as an .xz file must")
    file.seek(0)


class _Named(io.RawIOBase):
    """Reads a stream; its errors name the file."""

    def __init__(self, stream: BinaryIO, path: Path, file: _Counted) -> None:
        self._stream, self.name, self.file = stream, str(path), file
        self.num_bytes = 0  # after decompression

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        try:
            chunk = self._stream.read(len(view))
        except DECOMPRESSION_ERRORS as error:
            raise _damaged(Path(self.name), _reason(error)) from None
        except OSError as error:
            raise UserError(f"{self.name} cannot be read: {_reason(error)}.") from None
        view[: len(chunk)] = chunk
        self.num_bytes += len(chunk)
        return len(chunk)


def _damaged(path: Path, reason: str) -> UserError:
    return UserError(
        f"{path} is damaged or not a {path.suffix} file: {reason}. "
        "Get the file again, or correct its name."
    )


def _reason(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text.rstrip(".")


def _endless(stream: BinaryIO, number: int) -> UserError:
    name = getattr(stream, "name", None)
    return UserError(
        f"line {number:,} of {name if isinstance(name, str) else 'the input'} is longer than "
        f"{LONGEST_LINE >> 20} MB; is this text?"
    )
