"""Writes files and directories so that they appear whole or not at all; verifies directories."""

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from nmt_cli.files.file_names import MANIFEST
from nmt_cli.files.formats import check_version, written_version
from nmt_cli.files.output_streams import is_stream, open_stream
from nmt_cli.files.temporary_names import remove, temporary_path
from nmt_cli.messages import logs
from nmt_cli.messages.errors import DamagedError, OutputError, UserError

HASHED_AT_ONCE = 1 << 20  # bytes
LEAST_MIB_SHOWN = 1 << 10  # less takes about a second
SEAL = "manifest_sha256"
SAFE_NAME = re.compile(r"\w[^/\\\x00-\x1f]*")  # the endings of a user's files are in names
# Errors of writes that are not the program's fault, and what the user can do about each.
REMEDIES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some of your quota",
    errno.EFBIG: "raise the limit of file sizes (ulimit -f)",
    errno.EIO: "look for failures of the disk in the system's log (dmesg), or choose another disk",
}
# Errors of file systems that cannot sync a folder, such as those of FUSE.
NO_SYNC = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})


class Partial(NamedTuple):
    """A directory that is being written: its temporary path and what its manifest will hold."""

    path: Path
    manifest: dict[str, Any]


@contextmanager
def directory_appearing_whole(
    directory: Path, *, replace: bool = False, threads: int = 1
) -> Iterator[Partial]:
    """Yield a partial directory that becomes ``directory`` if the block ends without an error.

    Every file is hashed into ``manifest.json``, ``threads`` of them at a time, and fsynced before
    the rename. With ``replace``, an existing ``directory`` is removed after the new one is
    complete. Raises UserError if ``directory`` cannot be written, or exists and ``replace`` is
    false; OutputError if the disk is full.
    """
    refuse_directory(directory, replace=replace)
    partial = Partial(temporary_path(directory, "partial"), {})
    with naming_failed_writes(directory):
        make_folders(directory.parent)
        partial.path.mkdir()
        try:
            yield partial
            write_manifest(partial.path, partial.manifest, threads)
            for path in (*partial.path.iterdir(), partial.path):
                _sync(path)
            replaced = _set_aside(directory) if replace else None
            try:
                _give_name(partial.path, directory)
            except BaseException:
                if replaced is not None:
                    replaced.rename(directory)
                raise
            _sync(directory.parent)
        except BaseException:
            shutil.rmtree(partial.path, ignore_errors=True)
            raise
    if replaced is not None:
        with suppress(OSError):  # the next command that writes ``directory`` removes it
            _remove_for_good(replaced, directory)


@contextmanager
def file_appearing_whole(path: Path, *, replace: bool = False) -> Iterator[BinaryIO]:
    """Yield a binary file that becomes ``path`` if the block ends without an error.

    If ``path`` is a device or a pipe, such as /dev/null, the block writes to it directly. Raises
    UserError if ``path`` cannot be written, or exists and ``replace`` is false; OutputError if the
    disk is full.
    """
    refuse_file(path, replace=replace)
    if is_stream(path):
        with naming_failed_writes(path, leaves_nothing=False), open_stream(path) as stream:
            yield stream
        return
    partial = temporary_path(path, "partial")
    with naming_failed_writes(path):
        try:
            with partial.open("wb") as stream:
                yield stream
                publish_file(stream, path, replace=replace)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


def publish_file(stream: BinaryIO, path: Path, *, replace: bool) -> None:
    """Give the file that ``stream`` has written the name ``path``, after its bytes are on the disk.

    Raises UserError if ``path`` exists and ``replace`` is false.
    """
    stream.flush()
    os.fsync(stream.fileno())
    if not replace:
        refuse_file(path, replace=False)  # another process may have made it meanwhile
    Path(stream.name).rename(path)
    _sync(path.parent)


def refuse_directory(directory: Path, *, replace: bool) -> None:
    """Raise UserError if ``directory`` cannot be written, or exists and ``replace`` is false."""
    refuse_nameless(directory)
    refuse_broken_link(directory)
    if directory.exists() and not directory.is_dir():
        raise UserError(f"{directory} is a file, not a directory; choose another name.")
    if directory.exists() and not replace:
        raise UserError(f"{directory} already exists; add --force to replace it.")


def refuse_file(path: Path, *, replace: bool) -> None:
    """Raise UserError if ``path`` cannot be written, or exists and ``replace`` is false."""
    refuse_nameless(path)
    if is_stream(path):
        return
    if path.is_dir():
        raise UserError(f"{path} is a directory; give the name of a file.")
    refuse_broken_link(path)
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise UserError(f"{path} is not a plain file; choose another name.")
    if path.exists() and not replace:
        raise UserError(f"{path} already exists; add --force to replace it.")
    if not path.parent.is_dir():
        raise UserError(f"{path.parent} is not a directory; make it first, or choose another.")


def rewrite_manifest_without(directory: Path, name: str) -> None:
    """Remove the file ``name``, first from the manifest, which therefore is always right.

    Raises DamagedError if the manifest is missing or damaged, OutputError if the disk is full.
    """
    manifest = read_manifest(directory)
    del manifest["files"][name]
    with file_appearing_whole(directory / MANIFEST, replace=True) as stream:
        stream.write(_as_json(manifest))
    (directory / name).unlink(missing_ok=True)


def add_to_manifest(directory: Path, name: str, entries: Mapping[str, Any]) -> None:
    """Let the manifest name a file that was written after it, and have more ``entries``.

    Raises DamagedError if the manifest is missing or damaged, OutputError if the disk is full.
    """
    manifest, path = {**read_manifest(directory), **entries}, directory / name
    manifest["files"][name] = {"bytes": path.stat().st_size, "sha256": sha256(path)}
    with file_appearing_whole(directory / MANIFEST, replace=True) as stream:
        stream.write(_as_json(manifest))


def write_manifest(directory: Path, entries: Mapping[str, Any], threads: int = 1) -> None:
    """Write ``manifest.json``: the entries, and size and sha256 of every file beside it."""
    paths = [path for path in sorted(directory.iterdir()) if path.name != MANIFEST]
    hashes = sha256_of_each(paths, threads)
    files = {path.name: {"bytes": path.stat().st_size, "sha256": hashes[path]} for path in paths}
    manifest = {"format_version": written_version(entries.get("kind")), **entries, "files": files}
    (directory / MANIFEST).write_bytes(_as_json(manifest))


def read_manifest(directory: Path) -> dict[str, Any]:
    """Return the manifest of ``directory`` after checking it, but not the files it names.

    Raises DamagedError if the manifest is missing or damaged, OtherFormatError if its format is not
    read.
    """
    path = directory / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
        named = manifest["files"]
        well_formed = all(
            SAFE_NAME.fullmatch(name) and isinstance(entry["bytes"], int) and entry["sha256"]
            for name, entry in named.items()
        )
    except FileNotFoundError:
        raise DamagedError(f"{directory} has no {MANIFEST} to check its files with.") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedError(f"{path} is damaged: {error}.") from None
    if not well_formed:
        raise DamagedError(f"{path} is damaged: it names files outside its directory.")
    check_version(manifest, path)
    if manifest.pop(SEAL, None) != seal_of(manifest):
        raise changed(path)
    return manifest


def verify(
    directory: Path, unneeded: Collection[str] = (), unread_prefix: str | None = None
) -> dict[str, Any]:
    """Return the manifest of ``directory`` after checking every file it names against it.

    Files that are ``unneeded`` are not read, and may be missing. Of files whose names begin with
    ``unread_prefix`` only the size is checked. Raises DamagedError if the manifest or a file is
    missing or damaged, OtherFormatError if its format is not read.
    """
    manifest = read_manifest(directory)
    files = {name: file for name, file in manifest["files"].items() if name not in unneeded}
    unread = {n for n in files if unread_prefix is not None and n.startswith(unread_prefix)}
    num_bytes = sum(files[name]["bytes"] for name in files.keys() - unread)
    with checking(directory, num_bytes) as counter:
        for name, expected in files.items():
            path = directory / name
            try:
                _verify_file(path, expected, None if name in unread else counter)
            except FileNotFoundError:
                raise DamagedError(f"{path} was removed while it was read.") from None
    return manifest


def checking(path: Path, num_bytes: int) -> logs.ProgressBar:
    """Return the progress bar of reading so many bytes of ``path``, which counts each MiB."""
    total = num_bytes // HASHED_AT_ONCE
    return logs.progress(f"Checking {path}", "MiB", total, hidden=total < LEAST_MIB_SHOWN)


def changed(path: Path) -> DamagedError:
    """Return the error that a file does not have the checksum of its manifest."""
    return DamagedError(f"{path} has changed since it was written; it is damaged.")


def _verify_file(path: Path, expected: Mapping[str, Any], counter: logs.ProgressBar | None) -> None:
    """Compare a file with what the manifest has of it; raise DamagedError if it differs.

    Without a ``counter`` of what was read, only its size is compared.
    """
    if path.is_symlink() or not path.is_file():
        raise DamagedError(f"{path} is missing or not a plain file.")
    if path.stat().st_size != expected["bytes"]:
        raise DamagedError(
            f"{path} has {path.stat().st_size:,} bytes, "
            f"{MANIFEST} says {expected['bytes']:,}; it is damaged."
        )
    if counter is not None and sha256(path, counter.advance) != expected["sha256"]:
        raise changed(path)


def remove_directory(directory: Path) -> None:
    """Remove ``directory``; it is renamed first, so that no part of it is left under its name."""
    if directory.exists():
        _remove_for_good(directory, directory)


def sha256(path: Path, advance: Callable[[], None] = lambda: None) -> str:
    """Return the hexadecimal sha256 of the file's bytes; ``advance`` is called for each MiB."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(HASHED_AT_ONCE):
            digest.update(chunk)
            advance()
    return digest.hexdigest()


def sha256_of_each(paths: Iterable[Path], threads: int) -> dict[Path, str]:
    """Return the sha256 of each file; ``threads`` files are read at a time."""
    chosen = list(dict.fromkeys(paths))
    if threads == 1:
        return {path: sha256(path) for path in chosen}
    from concurrent.futures import ThreadPoolExecutor  # commands that only read need none

    with ThreadPoolExecutor(threads) as pool:
        return dict(zip(chosen, pool.map(sha256, chosen), strict=True))


def is_failed_write(error: OSError) -> bool:
    """Return whether a write failed because the disk is full, over a limit, or broken."""
    return error.errno in REMEDIES


def _as_json(manifest: Mapping[str, Any]) -> bytes:
    sealed = {**manifest, SEAL: seal_of(manifest)}
    text = json.dumps(sealed, indent=2, ensure_ascii=False)
    # A path that is not UTF-8 has half of a surrogate pair, and JSON the same escapes for it.
    return f"{text}\n".encode(errors="backslashreplace")


def seal_of(stored: Mapping[str, Any]) -> str:
    """Return a checksum of what is ``stored`` as JSON, such as a manifest itself."""
    return hashlib.sha256(json.dumps(stored, sort_keys=True).encode()).hexdigest()


def refuse_nameless(path: Path) -> None:
    """Raise UserError if ``path`` is ``.``, ``..`` or ``/``, which a rename cannot replace."""
    if path.name in {"", ".."}:
        raise UserError(f"{path} cannot be an output; give a path that ends in a name.")


def refuse_broken_link(path: Path) -> None:
    """Raise UserError if ``path`` is a link to a path that does not exist."""
    if path.is_symlink() and not path.exists():
        raise UserError(
            f"{path} is a link to {path.readlink()}, which does not exist; remove the link, or "
            "choose another name."
        )


@contextmanager
def naming_failed_writes(path: Path, *, leaves_nothing: bool = True) -> Iterator[None]:
    """Turn the error of a failed write to ``path`` into an OutputError with a remedy.

    ``leaves_nothing`` is whether what was written so far is removed.
    """
    try:
        yield
    except OSError as error:
        if not is_failed_write(error):
            raise
        what, remedy = f"{path} could not be written: {error.strerror}", REMEDIES[error.errno or 0]
        if leaves_nothing:
            what += ". Nothing half-written was left"
        raise OutputError(what, remedy, " and run again" * leaves_nothing) from error


def _give_name(partial: Path, directory: Path) -> None:
    """Rename ``partial``. Raises UserError if another process has created ``directory``."""
    try:
        partial.rename(directory)
    except OSError as error:
        if error.errno not in {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR}:
            raise
        raise UserError(
            f"{directory} was made by another process meanwhile; it was left as it is. "
            "Choose another name, or run again with --force to replace it."
        ) from None


def _set_aside(directory: Path) -> Path | None:
    if not directory.exists():
        return None
    aside = temporary_path(directory, "replaced")
    directory.rename(aside)
    return aside


def _remove_for_good(path: Path, directory: Path) -> None:
    """Remove ``path``, which is or was ``directory``, under a name that is never restored."""
    doomed = temporary_path(directory, "delete")
    path.rename(doomed)
    remove(doomed)


def make_folders(folder: Path) -> list[Path]:
    """Make ``folder`` and its parents; return those that were missing, the uppermost first.

    The parent of each new folder is synced; otherwise a power loss could remove the new one.
    """
    if folder.is_dir():
        return []
    made = make_folders(folder.parent)
    try:
        folder.mkdir(exist_ok=True)
    except FileExistsError:
        if not folder.exists():  # a link to nothing
            raise
        error = errno.ENOTDIR  # its message states that a folder is needed; EEXIST's does not
        raise NotADirectoryError(error, os.strerror(error), str(folder)) from None
    _sync(folder.parent)
    return [*made, folder]


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in NO_SYNC or not path.is_dir():
            raise
    finally:
        os.close(descriptor)


def append_whole(path: Path, data: bytes) -> None:
    """Write ``data`` at the end of the file; after an OSError the file is as it was before."""
    with path.open("ab", buffering=0) as stream:
        size = stream.seek(0, os.SEEK_END)
        left = memoryview(data)
        try:
            while left:
                left = left[stream.write(left) :]
        except OSError:
            stream.truncate(size)
            raise
