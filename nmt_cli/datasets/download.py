"""Downloads archives: continued where they broke off, checked, and repeated if they are wrong.

A file has its name only if its size and checksum are right; until then it is called
NAME.incomplete.
"""

import re
import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import requests

from nmt_cli.datasets.catalogue import Archive
from nmt_cli.files.atomic_files import is_failed_write, make_folders, sha256
from nmt_cli.files.locks import claimed
from nmt_cli.messages import logs
from nmt_cli.messages.errors import OutputError, UserError

ATTEMPTS = 5
FIRST_PAUSE = 2.0  # seconds before the second attempt; each further pause is twice as long
TIMEOUT_SECONDS = 60.0  # without a byte
CHUNK = 1 << 18  # bytes
RANGE_NOT_SATISFIABLE = 416
WORTH_REPEATING = {408, 425, 429}  # among the statuses 4xx
SYSTEM_ERROR = re.compile(r"\[Errno -?\d+\] ([^'\")\]]+)")


def fetch(archive: Archive, folder: Path) -> Path:
    """Return the path of the archive in ``folder``, downloaded unless it is there and right.

    Raises UserError if it cannot be downloaded; what has arrived is kept, and the next call
    continues there. Raises OutputError if the disk is full.
    """
    path, incomplete = folder / archive.name, _incomplete(folder, archive)
    make_folders(folder)
    with claimed(path, "--downloads"):
        if path.exists():
            problem = _problem(path, archive)
            if problem is None:
                return path
            logs.warning(f"{path} {problem}; it is downloaded again.")
        for attempt in range(1, ATTEMPTS + 1):
            problem = _attempt(archive, incomplete)
            if problem is None:
                incomplete.rename(path)
                return path
            _wait_after(attempt, archive.url, problem)
    raise UserError(
        f"{archive.url} {problem}, in the last of {ATTEMPTS} attempts. Run the same command again "
        "later: it continues where this one stopped."
    )


def num_bytes_at(url: str) -> int | None:
    """Return the size of the file at ``url``; None if there is none.

    Raises UserError if the server cannot be asked, or gives no size above 0.
    """
    answer = _answer("HEAD", url)
    if answer.status_code in (requests.codes.forbidden, requests.codes.not_found):
        return None  # stores whose files cannot be listed call a missing file forbidden
    size = answer.headers.get("Content-Length", "no")
    if answer.status_code != requests.codes.ok or not (size.isdecimal() and int(size)):
        found = f"{answer.status_code} {answer.reason}, with a size of {size} bytes"
        raise UserError(f"{url} cannot be downloaded: {found}.")
    return int(size)


def json_at(url: str, parameters: Mapping[str, str]) -> Any:
    """Return what the service at ``url`` answers. Raises UserError if it does not answer JSON."""
    answer = _answer("GET", url, parameters)
    try:
        answer.raise_for_status()
        return answer.json()
    except requests.HTTPError:
        problem = f"{answer.status_code} {answer.reason}"
    except requests.JSONDecodeError:
        problem = "something else than JSON"
    raise UserError(f"{url} gave {problem}; try it again later.")


def _answer(
    method: str, url: str, parameters: Mapping[str, str] | None = None
) -> requests.Response:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            # Without compression on the way, so that the size is that of the file.
            answer = requests.request(
                method,
                url,
                params=parameters,
                headers={"Accept-Encoding": "identity"},
                timeout=TIMEOUT_SECONDS,
                allow_redirects=True,
            )
        except requests.RequestException as error:
            problem = f"could not be asked{_why(error)}"
        else:
            if answer.status_code < 500 and answer.status_code not in WORTH_REPEATING:
                return answer
            problem = f"gave {answer.status_code} {answer.reason}"
        _wait_after(attempt, url, problem)
    raise UserError(
        f"{url} {problem}, in the last of {ATTEMPTS} attempts. Run the same command again later."
    )


def _wait_after(attempt: int, url: str, problem: str) -> None:
    """Warn of the problem of an attempt and wait before the next one, unless it was the last."""
    if attempt < ATTEMPTS:
        logs.warning(f"{url} {problem}; trying again ({attempt + 1} of {ATTEMPTS}).")
        time.sleep(FIRST_PAUSE * 2 ** (attempt - 1))


def refuse_small_disk(archives: Iterable[Archive], folder: Path) -> None:
    """Raise OutputError if what is missing of the archives does not fit into ``folder``."""
    make_folders(folder)
    missing = sum(
        max(0, archive.num_bytes - _size(_incomplete(folder, archive)))
        for archive in archives
        if not (folder / archive.name).exists()
    )
    free = shutil.disk_usage(folder).free
    if missing > free:
        raise OutputError(
            f"{folder} has {free:,} bytes of free space, but {missing:,} are to be downloaded; "
            "free some space, or choose another --downloads."
        )


def _incomplete(folder: Path, archive: Archive) -> Path:
    return folder / f"{archive.name}.incomplete"


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _attempt(archive: Archive, incomplete: Path) -> str | None:
    """Download what is missing; return what is wrong with the result, or None if it is right.

    Bytes that may be right are kept for the next attempt; all others are removed.
    """
    try:
        if _size(incomplete) < archive.num_bytes:
            _transfer(archive, incomplete)
    except requests.HTTPError as error:
        response = cast(requests.Response, error.response)  # raise_for_status always has one
        status, reason = response.status_code, response.reason
        if status == RANGE_NOT_SATISFIABLE:
            incomplete.unlink()
            reason = f"{reason}, since the file there has fewer than {archive.num_bytes:,} bytes"
        if 400 <= status < 500 and status not in WORTH_REPEATING:
            raise UserError(f"{archive.url} cannot be downloaded: {status} {reason}.") from None
        return f"gave {status} {reason}"
    except requests.RequestException as error:
        return f"broke off after {_size(incomplete):,} of {archive.num_bytes:,} bytes{_why(error)}"
    except OSError as error:
        if not is_failed_write(error):
            raise
        raise OutputError(
            f"{incomplete} could not be written: {error.strerror}. Free some space and run the "
            "same command again: it continues where this one stopped."
        ) from error
    if _size(incomplete) < archive.num_bytes:
        return f"ended after {_size(incomplete):,} of {archive.num_bytes:,} bytes"
    problem = _problem(incomplete, archive)
    if problem is not None:
        incomplete.unlink()
    return problem


def _problem(path: Path, archive: Archive) -> str | None:
    """Return what is wrong with the whole file ``path``; None if size and checksum are right.

    Without a known checksum, the size decides.
    """
    if _size(path) != archive.num_bytes:
        return f"has {_size(path):,} bytes instead of {archive.num_bytes:,}"
    if archive.sha256 is not None and (found := sha256(path)) != archive.sha256:
        return f"has the SHA-256 sum {found} instead of {archive.sha256}"
    return None


def _transfer(archive: Archive, incomplete: Path) -> None:
    """Append the missing bytes to ``incomplete``, or a chunk too many if more come.

    Raises RequestException if the transfer breaks off.
    """
    present = _size(incomplete)
    # Without compression on the way, so that bytes can be counted.
    headers = {"Accept-Encoding": "identity"}
    if present:
        headers["Range"] = f"bytes={present}-"
    with (
        requests.get(archive.url, headers=headers, timeout=TIMEOUT_SECONDS, stream=True) as sent,
        incomplete.open("ab") as file,
        logs.progress(archive.name, "bytes", archive.num_bytes, present) as counter,
    ):
        sent.raise_for_status()
        if sent.status_code == requests.codes.ok:  # the server does not know Range
            file.truncate(0)
        for chunk in sent.iter_content(CHUNK):
            file.write(chunk)
            file.flush()
            counter.advance(len(chunk))
            if _size(incomplete) > archive.num_bytes:
                return


def _why(error: requests.RequestException) -> str:
    """Return the system's reason in front of all the names of classes, or nothing."""
    if isinstance(error, requests.Timeout):
        return f" (nothing came for {TIMEOUT_SECONDS:.0f} seconds)"
    found = SYSTEM_ERROR.search(str(error))
    return f" ({found[1]})" if found else ""
