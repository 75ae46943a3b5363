"""Compressed bytes of .gz, .xz and .zst files, packed and unpacked as they are written and read."""

import gzip
import lzma
import sys
import zlib
from typing import Any, BinaryIO, cast

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# Of zstd --long; the default refuses windows of more than 128 MiB.
LONGEST_WINDOW = zstd.DecompressionParameter.window_log_max
ANY_WINDOW: dict[int, int] = {LONGEST_WINDOW: LONGEST_WINDOW.bounds()[1]}
ERRORS = (gzip.BadGzipFile, zlib.error, lzma.LZMAError, zstd.ZstdError)


def compressing(stream: BinaryIO, suffix: str) -> BinaryIO:
    """Return a file that compresses into ``stream`` as files of this suffix are."""
    packed: Any
    if suffix == ".gz":
        packed = gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0)
    elif suffix == ".xz":
        packed = lzma.LZMAFile(stream, "w")  # noqa: SIM115 - the caller closes it
    else:
        packed = zstd.ZstdFile(stream, "w")
    return cast(BinaryIO, packed)


def decompressing(stream: BinaryIO, suffix: str) -> BinaryIO:
    """Return a stream of the bytes that ``stream`` holds, compressed as files of this suffix are.

    Its ``read`` raises EOFError if they are damaged or end too early.
    """
    return cast(BinaryIO, _Unpacked(stream, suffix))


class _Unpacked:
    """Reads compressed bytes; all errors of a format are an EOFError."""

    def __init__(self, stream: BinaryIO, suffix: str) -> None:
        self._stream: Any
        if suffix == ".gz":
            self._stream = gzip.GzipFile(fileobj=stream)
        elif suffix == ".xz":
            self._stream = _Xz(stream)
        else:
            self._stream = zstd.ZstdFile(stream, options=ANY_WINDOW)

    def read(self, size: int) -> bytes:
        try:
            chunk: bytes = self._stream.read(size)
            return chunk
        except ERRORS as error:
            raise EOFError(str(error)) from None


class _Xz:
    """Decompresses all streams of an .xz file; Python's LZMAFile ends at padding between two."""

    def __init__(self, packed: BinaryIO) -> None:
        self._packed, self._rest = packed, b""
        self._stream: lzma.LZMADecompressor | None = lzma.LZMADecompressor(lzma.FORMAT_XZ)

    def read(self, size: int) -> bytes:
        """Return some bytes, none at the end. Raises EOFError or LZMAError for a damaged file."""
        while True:
            chunk = b""
            if self._stream is None:
                chunk = self._behind_padding(size)
                if not chunk:
                    return b""
                self._stream = lzma.LZMADecompressor(lzma.FORMAT_XZ)
            elif self._stream.needs_input:
                chunk = self._packed.read(size)
                if not chunk:
                    raise EOFError("it ends too early")
            text = self._stream.decompress(chunk, size)
            if self._stream.eof:
                self._rest, self._stream = self._stream.unused_data, None
            if text:
                return text

    def _behind_padding(self, size: int) -> bytes:
        rest = self._rest.lstrip(b"\0")
        while not rest and (chunk := self._packed.read(size)):
            rest = chunk.lstrip(b"\0")
        return rest
