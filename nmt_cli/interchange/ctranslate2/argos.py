"""Packages of Argos Translate: a folder or zip file with a model of CTranslate2 in ``model/``.

The SentencePiece model that cuts its text stands beside ``model/``, and ``metadata.json`` names its
languages. Of a zip file only these files are unpacked, under names that are known here.
"""

import errno
import lzma
import os
import re
import shutil
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

from nmt_cli.files.file_names import CTRANSLATE2_MODEL
from nmt_cli.interchange.files import read_config
from nmt_cli.interchange.options import refuse, shown
from nmt_cli.messages import logs
from nmt_cli.messages.errors import DamagedError, UserError

METADATA, MODEL = "metadata.json", "model"
CODES = ("from_code", "to_code")  # in the metadata
CUT_BY_BPE = "bpe.model"  # of subword-nmt, in place of the SentencePiece model
SUFFIX = ".argosmodel"
WANTED = re.compile(
    rf"(?:[^/]+/)?({METADATA}|sentencepiece\.model|{CUT_BY_BPE}|{MODEL}/[A-Za-z0-9_][\w.-]*)", re.A
)
OUTSIDE = re.compile(r"^[/\\]|(^|[/\\])\.\.([/\\]|$)")
MOST_TIMES_AS_LONG = 100  # as the zip file; weights are hardly compressed, vocabularies to a third
SMALLEST_LIMIT = 1 << 28  # bytes, which fill no disk
DAMAGES = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, RuntimeError,
           ValueError)  # fmt: skip


def is_package(path: Path) -> bool:
    """Return whether ``path`` is a package, as a folder or a zip file, or its folder ``model``.

    Raises DamagedError if the ``metadata.json`` of a folder that looks so is not an object.
    """
    if path.is_dir():
        return package_of(path) is not None
    if path.suffix == SUFFIX:
        return path.is_file()
    with suppress(OSError, *DAMAGES), zipfile.ZipFile(path) as file:
        return _wanted(file).keys() >= {METADATA, f"{MODEL}/{CTRANSLATE2_MODEL}"}
    return False


def package_of(folder: Path) -> Path | None:
    """Return the package that ``folder`` or, if it is a ``model``, the folder above it is."""
    if (folder / MODEL).is_dir() and CODES[0] in read_config(folder, METADATA):
        return folder
    above = folder.absolute().parent
    with suppress(UserError):  # of a file that has the name by chance
        if folder.absolute().name == MODEL and CODES[0] in read_config(above, METADATA):
            return above
    return None


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Yield the folder at ``path``, or that of an unpacked zip file, which is removed at the end.

    Raises UserError if ``path`` is another file or would fill the disk, DamagedError if it is
    damaged. Errors in the block about unpacked files name the zip file.
    """
    if not path.is_file():
        yield path
        return
    with TemporaryDirectory(prefix="nmt-cli-import-") as name:
        folder = Path(name)
        try:
            with zipfile.ZipFile(path) as file:
                _unpack(file, path, folder)
        except (*DAMAGES, OSError) as error:
            # EINVAL: zipfile looks for something before the beginning of the file.
            if isinstance(error, OSError) and error.errno != errno.EINVAL:
                raise _unreadable(path, error) from None
            raise DamagedError(
                f"{path} is no package of Argos Translate, or is damaged: {error}; get the file "
                "again, or give the folder of a model of CTranslate2."
            ) from None
        try:
            yield folder
        except UserError as error:
            raise type(error)(str(error).replace(name, str(path))) from None


def _unreadable(path: Path, error: OSError) -> UserError:
    if error.filename == str(path):
        return UserError(f"{path} cannot be read: {error.strerror}.")
    return UserError(
        f"{path} could not be unpacked into {gettempdir()}: {error.strerror}; name another folder "
        "in the variable TMPDIR, or unpack it yourself and give the folder."
    )


def _unpack(file: zipfile.ZipFile, path: Path, folder: Path) -> None:
    """Write the wanted members into ``folder``. Raises ValueError if the file is no package."""
    members = _wanted(file)
    if METADATA not in members:
        raise ValueError(f"it holds no {METADATA}")
    num_bytes, size = sum(each.file_size for each in members.values()), path.stat().st_size
    if num_bytes > max(SMALLEST_LIMIT, MOST_TIMES_AS_LONG * size):
        raise ValueError(f"its {size:,} bytes unpack to {num_bytes:,}, more than any model's")
    if num_bytes > shutil.disk_usage(folder).free:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    (folder / MODEL).mkdir()
    for name, member in members.items():
        with file.open(member) as packed, (folder / name).open("wb") as output:
            shutil.copyfileobj(packed, output)  # no more than the size that the member states


def _wanted(file: zipfile.ZipFile) -> Mapping[str, zipfile.ZipInfo]:
    """Return the members to unpack by our names.

    Raises ValueError if there are two of one name, or one whose name is a path outside, which no
    package has.
    """
    found: dict[str, zipfile.ZipInfo] = {}
    for member in file.infolist():
        if OUTSIDE.search(member.filename):
            raise ValueError(f"it holds {shown(member.filename)}, a path outside")
        match = WANTED.fullmatch(member.filename)
        if match is not None and match[1] in found:
            raise ValueError(f"it holds {match[1]} twice")
        if match is not None:
            found[match[1]] = member
    return found


def languages_of(package: Path, *, is_cut: bool) -> tuple[object, object]:
    """Return the languages that a package names; warn unless a SentencePiece model cuts its text.

    Raises ValueError if its translations begin with a mark of the target language.
    """
    metadata = read_config(package, METADATA)
    if metadata.get("target_prefix"):
        refuse([f"its translations begin with target_prefix {shown(metadata['target_prefix'])}"])
    if not is_cut:
        has_bpe = (package / CUT_BY_BPE).is_file()
        by = f"cuts its text by {CUT_BY_BPE}" if has_bpe else "has no SentencePiece model"
        logs.warning(f"the package {by}, so the model reads text that is in pieces already.")
    return metadata.get(CODES[0]), metadata.get(CODES[1])
