"""Unpacks models for a while: zip and tar archives, and folders with parts in .gz."""

import errno
import gzip
import lzma
import os
import re
import shutil
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import IO, Any

from nmt_cli.files.text_files import READ_AT_ONCE
from nmt_cli.interchange.options import shown
from nmt_cli.messages.errors import DamagedError, UserError

Stream = IO[bytes] | gzip.GzipFile
ZIPS = (".zip", ".argosmodel")
TARS = (".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")
PACKED_PARTS = ("*.bin.gz", "*.npz.gz", "*.pt.gz", "*.spm.gz", "*.yml.gz", "*.json.gz", "*.txt.gz")
# What may be of a model: at most two folders deep, and hidden nowhere.
MEMBER = re.compile(r"(?:\./)?((?:\w[^/\\]*/){0,2}\w[^/\\]*)")
OUTSIDE = re.compile(r"^[/\\]|(^|[/\\])\.\.([/\\]|$)")
MOST_TIMES_AS_LONG = 100  # as the archive; weights are hardly compressed, vocabularies to a third
SMALLEST_LIMIT = 1 << 28  # bytes, which fill no disk
MOST_MEMBERS = 10_000  # also of those that are not unpacked; tarfile keeps them in memory
LONGEST_HEADER = 1 << 16  # bytes of a name with its attributes, which tarfile reads at once
DAMAGES = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, struct.error, EOFError,
           RuntimeError, ValueError)  # fmt: skip
# Of OSErrors: a wrong checksum has none, zipfile looks for something before the beginning of the
# file, a member is a file and a folder, and a name is longer than any.
ERRORS_OF_DAMAGE = (None, errno.EINVAL, errno.EEXIST, errno.ENOTDIR, errno.ENAMETOOLONG)


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Yield ``path``, or if it is an archive or has packed parts, a folder that has all unpacked.

    The folder is removed at the end. Raises UserError if it would fill the disk, DamagedError if an
    archive is damaged. Errors in the block about unpacked files name ``path``.
    """
    parts = _packed_parts(path) if path.is_dir() else []
    is_archive = path.is_file() and path.name.lower().endswith((*ZIPS, *TARS))
    if not parts and not is_archive:
        yield path
        return
    with TemporaryDirectory(prefix="nmt-cli-import-") as name:
        folder = Path(name)
        try:
            num_bytes = sum(each.stat().st_size for each in parts or [path])
            _write(_members(path, parts), folder, num_bytes)
        except (*DAMAGES, OSError) as error:
            if isinstance(error, OSError) and error.errno not in ERRORS_OF_DAMAGE:
                raise _unreadable(path, error) from None
            raise DamagedError(
                f"{path} is damaged: {error}; get it again, or unpack it yourself and give the "
                "folder."
            ) from None
        if parts:
            for each in path.iterdir():
                if each not in parts and each.suffix != ".gz":
                    (folder / each.name).symlink_to(each.absolute())
        while len(found := list(folder.iterdir())) == 1 and found[0].is_dir():
            (folder,) = found
        try:
            yield folder
        except UserError as error:
            raise type(error)(str(error).replace(str(folder), str(path))) from None


def _packed_parts(folder: Path) -> list[Path]:
    """Return the parts of a model that are packed, unless the unpacked ones are beside them."""
    found = [each for pattern in PACKED_PARTS for each in folder.glob(pattern)]
    return [each for each in found if not each.with_suffix("").exists()]


def _members(path: Path, parts: list[Path]) -> Iterator[tuple[str, Stream]]:
    """Yield the name and the content of each file; links are none."""
    if parts:
        for part in parts:
            with gzip.open(part) as packed:
                yield part.stem, packed
    elif path.name.lower().endswith(ZIPS):
        with zipfile.ZipFile(path) as archive:
            for each in _few(archive.infolist()):
                if not each.is_dir():
                    with archive.open(each) as stream:
                        yield each.filename, stream
    else:
        with tarfile.open(path, "r|*", tarinfo=_Member) as tar:
            for member in _few(tar):
                content = tar.extractfile(member) if member.isreg() else None
                if content is not None:
                    yield member.name, content


class _Member(tarfile.TarInfo):
    """A member of a tar archive, whose header fits into memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "_Member":
        """Return the member or the further header that ``buf`` is the header of."""
        found = super().frombuf(buf, encoding, errors)
        if not found.isreg() and found.size > LONGEST_HEADER:
            raise ValueError(f"it holds a header of {found.size:,} bytes")
        return found


def _few(members: Iterable[Any]) -> Iterator[Any]:
    for number, each in enumerate(members):
        if number == MOST_MEMBERS:
            raise ValueError(f"it holds more than {MOST_MEMBERS:,} files")
        yield each


def _write(members: Iterator[tuple[str, Stream]], folder: Path, num_bytes: int) -> None:
    """Write what may be of a model into ``folder``; ``num_bytes`` are those of the archive.

    Raises ValueError if it holds a file twice, a path outside, or far more than its size.
    """
    num_written, free = 0, shutil.disk_usage(folder).free
    for name, stream in members:
        if OUTSIDE.search(name):
            raise ValueError(f"it holds {shown(name)}, a path outside")
        if (match := MEMBER.fullmatch(name)) is None:
            continue
        output = folder / match[1]
        if output.exists():
            raise ValueError(f"it holds {shown(match[1])} twice")
        output.parent.mkdir(parents=True, exist_ok=True)
        with output.open("xb") as file:
            while block := stream.read(READ_AT_ONCE):
                num_written += len(block)
                if num_written > max(SMALLEST_LIMIT, MOST_TIMES_AS_LONG * num_bytes):
                    raise ValueError(f"its {num_bytes:,} bytes unpack to more than any model's")
                if num_written > free:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                file.write(block)


def _unreadable(path: Path, error: OSError) -> UserError:
    if error.filename == str(path):
        return UserError(f"{path} cannot be read: {error.strerror}.")
    return UserError(
        f"{path} could not be unpacked into {gettempdir()}: {error.strerror}; name another folder "
        "in the variable TMPDIR, or unpack it yourself and give the folder."
    )
