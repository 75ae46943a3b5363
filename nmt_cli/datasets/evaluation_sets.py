"""Test sets that sacreBLEU downloads, checks by their MD5 sum and converts to plain text.

They are kept in sacreBLEU's own folder (~/.sacrebleu, or the one that the environment variable
SACREBLEU names), so the command ``sacrebleu -t`` scores against the same files.
"""

import logging
import shutil
import socket
import tarfile
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import URLError

from sacrebleu.dataset import DATASETS
from sacrebleu.utils import SACREBLEU_DIR

from nmt_cli.files.atomic_files import is_failed_write
from nmt_cli.messages import logs
from nmt_cli.messages.errors import OutputError, UserError
from nmt_cli.messages.figures import counted

ATTEMPTS = 3
PAUSE_SECONDS = 5.0
TIMEOUT_SECONDS = 60.0  # without a byte; sacreBLEU itself would wait for ever
STATUS_OF_SACREBLEU = 1  # it ends the program if the MD5 sum is wrong
TRANSFER_ERRORS = (URLError, HTTPException, TimeoutError, ConnectionError)


class DownloadedSet(NamedTuple):
    """A test set as plain text, one sentence a line, and the archive that it comes from."""

    source: Path
    reference: Path
    url: str
    md5: str


class _WrongCopyError(Exception):
    """What sacreBLEU has stored is wrong and must be downloaded again. The message states why."""


def download(name: str, language_pair: str, num_lines: int) -> DownloadedSet:
    """Return sacreBLEU's test set ``name``, such as wmt14/full, for ``language_pair``: en-de.

    Downloads it if it is not there yet; a broken or damaged copy is downloaded again. Raises
    UserError if no attempt gave two files of ``num_lines`` lines, OutputError if the disk is full.
    """
    dataset: Any = DATASETS[name]  # most of its methods have no types
    url, md5 = dataset.data[0], dataset.md5[0]
    folder = Path(SACREBLEU_DIR) / name
    for attempt in range(1, ATTEMPTS + 1):
        try:
            source, reference = _files(dataset, language_pair, folder)
            _check_lines((source, reference), num_lines)
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


def _files(dataset: Any, language_pair: str, folder: Path) -> tuple[Path, Path]:
    """Return source and reference, which sacreBLEU downloads and converts if they are missing."""
    try:
        with _quiet_and_impatient():
            source, reference = dataset.get_files(language_pair)[:2]
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
    return Path(source), Path(reference)


def _check_lines(paths: Iterable[Path], num_lines: int) -> None:
    for path in paths:
        with path.open("rb") as stream:
            found = sum(block.count(b"\n") for block in iter(partial(stream.read, 1 << 20), b""))
        if found != num_lines:
            raise _WrongCopyError(f"{path} had {counted(found, 'line')} instead of {num_lines:,}")


@contextmanager
def _quiet_and_impatient() -> Iterator[None]:
    """Let sacreBLEU log nothing, because we report its errors, and wait only for a time."""
    logger, timeout = logging.getLogger("sacrebleu"), socket.getdefaulttimeout()
    was_disabled, logger.disabled = logger.disabled, True
    socket.setdefaulttimeout(TIMEOUT_SECONDS)
    try:
        yield
    finally:
        logger.disabled = was_disabled
        socket.setdefaulttimeout(timeout)
