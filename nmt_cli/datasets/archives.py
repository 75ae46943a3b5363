"""Copies the texts in tar archives to files of one sentence a line."""

import gzip
import tarfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from nmt_cli.corpus.lines import BYTE_ORDER_MARK
from nmt_cli.corpus.text_files import READ_AT_ONCE
from nmt_cli.errors import UserError

DAMAGED = (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error)


def append_members(
    archive: Path, outputs: Mapping[str, BinaryIO], advance: Callable[[int], None]
) -> dict[str, int]:
    """Append the text of each member to its output; return how many lines each member has.

    The archive is read once, from beginning to end, and nothing else of it is unpacked.
    ``advance`` is called with the number of lines that were copied since its last call. Raises
    UserError if the archive is damaged or does not have a member.
    """
    num_lines: dict[str, int] = {}
    try:
        with tarfile.open(archive, "r|*") as tar:
            for member in tar:
                name = str(PurePosixPath(member.name))  # without ./ in front
                stream = tar.extractfile(member) if name in outputs else None
                if stream is not None and name not in num_lines:
                    text = _decompressed(cast(BinaryIO, stream), name)
                    num_lines[name] = append_lines(text, outputs[name], advance)
                if len(num_lines) == len(outputs):
                    break
    except DAMAGED as error:
        raise UserError(
            f"{archive} is damaged ({error}); remove it and run the same command again."
        ) from None
    for name in outputs:
        if name not in num_lines:
            raise UserError(f"{archive} has no file {name}; it is not the archive that we know.")
    return num_lines


def append_lines(text: BinaryIO, output: BinaryIO, advance: Callable[[int], None]) -> int:
    """Append ``text`` to ``output``, byte by byte; return the number of its lines.

    Only line feeds separate lines. A line feed is added if the last line has none, and a byte order
    mark at the beginning is left out: both would be errors in the middle of a joined file.
    """
    num_lines, last = 0, b"\n"
    block = text.read(READ_AT_ONCE).removeprefix(BYTE_ORDER_MARK)
    while block:
        output.write(block)
        in_block = block.count(b"\n")
        num_lines += in_block
        advance(in_block)
        last = block[-1:]
        block = text.read(READ_AT_ONCE)
    if last != b"\n":
        output.write(b"\n")
        num_lines += 1
        advance(1)
    return num_lines


def _decompressed(stream: BinaryIO, name: str) -> BinaryIO:
    return cast(BinaryIO, gzip.GzipFile(fileobj=stream)) if name.endswith(".gz") else stream
