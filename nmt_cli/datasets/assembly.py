"""Downloads the parts of a parallel data set and joins them to one file for each language.

sacreBLEU downloads test sets, checks them by their MD5 sum and converts them to plain text. They
are kept in its own folder (~/.sacrebleu, or the one that the environment variable SACREBLEU names),
so the command ``sacrebleu -t`` scores against the same files.
"""

import errno
import gzip
import logging
import lzma
import shutil
import socket
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import closing
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple, cast
from urllib.error import URLError

from sacrebleu.dataset import DATASETS
from sacrebleu.utils import SACREBLEU_DIR

from nmt_cli.datasets.catalogue import Archive, EvaluationSet, ParallelDataset, Part
from nmt_cli.files.atomic_files import is_failed_write, sha256
from nmt_cli.files.lines import BYTE_ORDER_MARK
from nmt_cli.files.text_files import READ_AT_ONCE
from nmt_cli.messages import logs
from nmt_cli.messages.errors import OutputError, UserError
from nmt_cli.messages.figures import counted


class DownloadedSet(NamedTuple):
    """A test set as plain text, one sentence a line, and the archive that it comes from."""

    source: Path
    reference: Path
    url: str
    md5: str


def download(
    dataset: ParallelDataset, folder: Path
) -> tuple[dict[Archive, Path], dict[EvaluationSet, DownloadedSet]]:
    """Return the archives, kept in ``folder``, and the test sets, kept by sacreBLEU.

    What is there already is checked and not downloaded again. Raises UserError if something cannot
    be downloaded, OutputError if the disk is full.
    """
    from nmt_cli.datasets.download import fetch, refuse_small_disk  # imports requests

    refuse_small_disk([part.archive for part in dataset.train], folder)
    languages = "-".join(dataset.languages)
    downloaded_sets = {
        wanted: download_set(wanted.sacrebleu_name, languages, wanted.num_lines)
        for wanted in dataset.evaluation_sets
    }
    archives = {part.archive: fetch(part.archive, folder) for part in dataset.train}
    return archives, downloaded_sets


def write_train(
    dataset: ParallelDataset, archives: Mapping[Archive, Path], folder: Path
) -> list[dict[str, Any]]:
    """Write ``train`` in both languages, all parts in order; return facts about each part.

    Raises UserError if an archive is damaged, or if the two sides of a part differ in length.
    """
    source_name, target_name = (f"train.{language}" for language in dataset.languages)
    total = sum(2 * (part.num_lines or 0) for part in dataset.train) or None
    with (
        (folder / source_name).open("wb") as source,
        (folder / target_name).open("wb") as target,
        logs.progress("Joining the parts", "lines", total) as counter,
    ):
        facts = []
        for part in dataset.train:
            members = [part.members.format(language=each) for each in dataset.languages]
            outputs = dict(zip(members, (source, target), strict=True))
            path = archives[part.archive]
            num_lines = append_members(path, outputs, counter.advance)
            _check_sides(part, path, num_lines)
            facts.append(
                {
                    "name": part.name,
                    "url": part.archive.url,
                    "bytes": part.archive.num_bytes,
                    "sha256": part.archive.sha256 or sha256(path),
                    "members": members,
                    "lines": num_lines[members[0]],
                    "expected_lines": part.num_lines,
                }
            )
    return facts


def write_evaluation_sets(
    dataset: ParallelDataset, downloaded: Mapping[EvaluationSet, DownloadedSet], folder: Path
) -> list[dict[str, Any]]:
    """Copy the test sets in both languages; return facts about each."""
    facts = []
    for wanted, files in downloaded.items():
        for path, language in zip((files.source, files.reference), dataset.languages, strict=True):
            shutil.copyfile(path, folder / f"{wanted.name}.{language}")
        facts.append(
            {
                "name": wanted.name,
                "sacrebleu": wanted.sacrebleu_name,
                "url": files.url,
                "md5": files.md5,
                "lines": wanted.num_lines,
            }
        )
    return facts


def _check_sides(part: Part, path: Path, num_lines: Mapping[str, int]) -> None:
    """Raise UserError if the sides differ in length; warn if there are more or fewer than known."""
    (one, num_one), (other, num_other) = num_lines.items()
    if num_one != num_other:
        raise UserError(
            f"{path}: {one} has {counted(num_one, 'line')} but {other} has {num_other:,}; "
            "line n of one must translate line n of the other."
        )
    if part.num_lines not in (None, num_one):
        found = counted(num_one, "pair")
        logs.warning(f"{part.name} has {found}, {part.num_lines:,} were expected.")


ZIP = ".zip"
MOST_TIMES_AS_LONG = 100  # as the archive; text is compressed to a fifth, or to a twentieth at best
SMALLEST_LIMIT = 1 << 28  # bytes, which fill no disk; a small text may be one line many times
DAMAGED = (
    tarfile.TarError,
    EOFError,
    gzip.BadGzipFile,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
    UnicodeError,  # of names in a zip archive
    RuntimeError,  # zipfile's, of methods and encryption that it does not know
)


def append_members(
    archive: Path, outputs: Mapping[str, BinaryIO], advance: Callable[[int], None]
) -> dict[str, int]:
    """Append the text of each member to its output; return how many lines each member has.

    A tar archive is read once, from beginning to end, and nothing else of it is unpacked.
    ``advance`` is called with the number of lines that were copied since its last call. Raises
    UserError if the archive is damaged, does not have a member, or would fill the disk.
    """
    num_lines: dict[str, int] = {}
    num_bytes = archive.stat().st_size
    most = max(SMALLEST_LIMIT, MOST_TIMES_AS_LONG * num_bytes)  # a small archive can unpack to any
    written_before = sum(output.tell() for output in outputs.values())

    def advance_within(num_lines: int) -> None:
        if sum(output.tell() for output in outputs.values()) - written_before > most:
            raise UserError(
                f"{archive} has {num_bytes:,} bytes and unpacks to more than {most:,}; no text is "
                "compressed that much. Remove the archive."
            )
        advance(num_lines)

    try:
        with closing(_members(archive, outputs)) as members:
            for name, text in members:
                num_lines[name] = append_lines(text, outputs[name], advance_within)
    except (*DAMAGED, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise  # EINVAL: zipfile looks for something before the beginning of the file
        raise UserError(
            f"{archive} is damaged ({error}); remove it and run the same command again."
        ) from None
    for name in outputs:
        if name not in num_lines:
            raise UserError(f"{archive} has no file {name}; it is not the archive that we know.")
    return num_lines


def _members(archive: Path, names: Collection[str]) -> Generator[tuple[str, BinaryIO], None, None]:
    """Yield those ``names`` that the archive has, each with its text; of equal names the first."""
    if archive.suffix == ZIP:
        with zipfile.ZipFile(archive) as file:
            there = {*file.namelist()}
            for name in (name for name in names if name in there):
                with file.open(name) as text:
                    yield name, cast(BinaryIO, text)
        return
    missing = {*names}
    with tarfile.open(archive, "r|*") as tar:
        for member in tar:
            name = str(PurePosixPath(member.name))  # without ./ in front
            stream = tar.extractfile(member) if name in missing else None
            if stream is not None:
                is_packed = name.endswith(".gz")
                yield name, cast(BinaryIO, gzip.GzipFile(fileobj=stream) if is_packed else stream)
                missing.remove(name)
            if not missing:
                return


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


ATTEMPTS = 3
PAUSE_SECONDS = 5.0
TIMEOUT_SECONDS = 60.0  # without a byte; sacreBLEU itself would wait for ever
STATUS_OF_SACREBLEU = 1  # it ends the program if the MD5 sum is wrong
TRANSFER_ERRORS = (URLError, HTTPException, TimeoutError, ConnectionError)


class _WrongCopyError(Exception):
    """What sacreBLEU has stored is wrong and must be downloaded again. The message states why."""


def download_set(name: str, language_pair: str, num_lines: int) -> DownloadedSet:
    """Return sacreBLEU's test set ``name``, such as wmt14/full, for ``language_pair``: en-de.

    Downloads it if it is not there yet; a broken or damaged copy is downloaded again. Raises
    UserError if no attempt gave two files of ``num_lines`` lines, OutputError if the disk is full.
    """
    dataset: Any = DATASETS[name]  # most of its methods have no types
    url, md5 = dataset.data[0], dataset.md5[0]
    folder = Path(SACREBLEU_DIR) / name
    for attempt in range(1, ATTEMPTS + 1):
        try:
            source, reference = _files(dataset, language_pair, folder, num_lines)
            return DownloadedSet(source, reference, url, md5)
        except TRANSFER_ERRORS as error:
            problem = str(getattr(error, "reason", error))
        except _WrongCopyError as error:
            problem = str(error)
            shutil.rmtree(folder, ignore_errors=True)
        if attempt < ATTEMPTS:
            logs.warning(f"{url}: {problem}; trying again ({attempt + 1} of {ATTEMPTS}).")
            time.sleep(PAUSE_SECONDS)
    raise UserError(
        f"{url} could not be downloaded in {ATTEMPTS} attempts: {problem}. "
        "Run the same command again later."
    )


def _files(dataset: Any, language_pair: str, folder: Path, num_lines: int) -> list[Path]:
    """Return source and reference, which sacreBLEU downloads and converts if they are missing."""
    logger, timeout = logging.getLogger("sacrebleu"), socket.getdefaulttimeout()
    was_disabled, logger.disabled = logger.disabled, True  # we report its errors
    socket.setdefaulttimeout(TIMEOUT_SECONDS)
    try:
        paths = [Path(name) for name in dataset.get_files(language_pair)[:2]]
    except TRANSFER_ERRORS:
        raise
    except SystemExit as error:
        if error.code != STATUS_OF_SACREBLEU:  # a signal ended the program
            raise
        raise _WrongCopyError(f"its MD5 sum is not {dataset.md5[0]}") from None
    except (OSError, tarfile.TarError, EOFError, zlib.error) as error:
        if isinstance(error, OSError) and is_failed_write(error):
            raise OutputError(f"{folder} could not be written: {error.strerror}.") from None
        raise _WrongCopyError(f"its copy in {folder} was damaged") from None
    finally:
        logger.disabled = was_disabled
        socket.setdefaulttimeout(timeout)
    for path in paths:
        found = path.read_bytes().count(b"\n")
        if found != num_lines:
            raise _WrongCopyError(f"{path} had {counted(found, 'line')} instead of {num_lines:,}")
    return paths
