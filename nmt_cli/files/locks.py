"""Locks: one process at a time trains in a run directory, or writes an output.

The kernel drops a lock when the process that holds it ends, however it ends. The package filelock
is not used: where the kernel has no locks (ENOSYS), it makes files that a killed process leaves
behind, and its versions before 3.30 empty the file of the process that holds the lock.
"""

import errno
import fcntl
import json
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import BinaryIO

from nmt_cli.files.atomic_files import is_failed_write, make_folders, refuse_nameless
from nmt_cli.files.file_names import MANIFEST
from nmt_cli.files.output_streams import is_stream
from nmt_cli.files.temporary_names import is_set_aside, remove_leftovers, restore_names, shortened
from nmt_cli.messages.errors import UserError

NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})
ATTEMPTS = 10  # to open a lock file that others remove at the same time


class LockHeldError(Exception):
    """Another process holds the lock; the message names it, its work and its start."""


class NoLocksError(Exception):
    """The file system does not support locks; the message is the kernel's reason."""


class OutputInUseError(UserError):
    """Another process is writing the output."""


class UnwritableOutputError(UserError):
    """The folder of the output cannot be written."""

    @classmethod
    def of(cls, error: OSError, option: str) -> "UnwritableOutputError":
        """Return the error for what the system has refused; ``option`` chooses another place."""
        folder = "the current folder" if error.filename == "." else error.filename or "the folder"
        return cls(f"{folder} cannot be used: {error.strerror}; choose another {option}.")


@contextmanager
def locked(lock: Path, does: str, is_kept: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Hold the lock file ``lock`` for this process alone; ``does`` describes its work.

    Unless ``is_kept()``, the file is removed at the end, and so are the empty folders that were
    made for it. Raises LockHeldError or NoLocksError.
    """
    made: list[Path] = []
    try:
        with _acquired(lock, made) as stream:
            _write_holder(stream, does)
            try:
                yield
            finally:
                stream.truncate(0)
                if is_kept():
                    made.clear()
                else:
                    lock.unlink(missing_ok=True)
    except NoLocksError:
        if not is_kept():
            lock.unlink(missing_ok=True)
        raise
    finally:
        for folder in reversed(made):
            with suppress(OSError):  # not empty
                folder.rmdir()


@contextmanager
def claimed(output: Path, option: str) -> Iterator[None]:
    """Hold the lock of the file or directory ``output``, so that no other process writes it.

    ``option`` is the command's option for the output, for messages. If a process was killed while
    it replaced ``output``, the replaced one gets its name back; other leftovers of killed processes
    are removed. On a file system without locks no leftovers are removed, and the second of two
    processes gets its error only when it renames its result. Raises OutputInUseError if another
    process holds the lock, UnwritableOutputError if the folder of ``output`` cannot be written, and
    UserError if ``output`` has no name (such as ``.``).
    """
    refuse_nameless(output)
    if is_stream(output):
        yield
        return
    lock = output.with_name(f".lock-{shortened(output.name)}")
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(lock, "writes it"))
        except LockHeldError as error:
            raise OutputInUseError(
                f"{output} is in use: {error}; wait for it, or choose another {option}."
            ) from None
        except NoLocksError:
            restore_names(output.parent, output.name)
        except OSError as error:
            if is_failed_write(error):
                raise
            raise UnwritableOutputError.of(error, option) from None
        else:
            remove_leftovers(output.parent, output.name)
        yield


@contextmanager
def read_lock(folder: Path) -> Iterator[None]:
    """Keep other processes from replacing ``folder``; ``refuse_while_read`` sees this lock.

    Its manifest is locked, so no lock file is written there. Does nothing if that cannot be locked.
    """
    with ExitStack() as stack:
        with suppress(OSError):
            stream = stack.enter_context((folder / MANIFEST).open("rb"))
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield


def refuse_while_read(folder: Path, reader: str, option: str) -> None:
    """Raise OutputInUseError if a process holds the ``read_lock`` of ``folder``.

    ``reader`` says who reads it, and ``option`` chooses another output.
    """
    with suppress(OSError), (folder / MANIFEST).open("r+b") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputInUseError(
                f"{folder} is in use: {reader} reads it; wait for its end, or choose another "
                f"{option}."
            ) from None


def restore_replaced(output: Path) -> None:
    """Give ``output`` its name back if a process was killed while it replaced it.

    Does nothing while another process writes ``output``, or if the folder cannot be written.
    """
    if is_set_aside(output):
        with suppress(OutputInUseError, UnwritableOutputError, OSError), claimed(output, ""):
            pass


@contextmanager
def _acquired(lock: Path, made: list[Path]) -> Iterator[BinaryIO]:
    """Yield the locked file; add the folders that are made for it to ``made``."""
    for _ in range(ATTEMPTS):
        with _opened(lock, made) as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LockHeldError(_holder(stream)) from None
            except OSError as error:
                if error.errno not in NO_LOCKS:
                    raise
                raise NoLocksError(error.strerror) from None
            if os.fstat(stream.fileno()).st_nlink:
                yield stream
                return
        # The previous holder removed this file; another process may have locked a new one.
    raise LockHeldError("several processes start there at the same time")


def _opened(lock: Path, made: list[Path]) -> BinaryIO:
    for _ in range(ATTEMPTS):
        made += make_folders(lock.parent)
        try:
            return lock.open("a+b", buffering=0)
        except FileNotFoundError:
            continue  # another process, which did not get the lock, removed the folder it had made
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(lock.parent)) from None
    if lock.parent.exists():  # and yet nothing can be made in it, as in /proc
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(lock.parent))
    raise LockHeldError("several processes start there at the same time")


def _write_holder(stream: BinaryIO, does: str) -> None:
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    holder = {"process": os.getpid(), "host": platform.node(), "does": does, "since": now}
    stream.truncate(0)
    with suppress(OSError):  # disk full: the lock is held, but messages cannot name its holder
        stream.write(json.dumps(holder).encode())


def _holder(stream: BinaryIO) -> str:
    stream.seek(0)
    try:
        holder = json.loads(stream.read())
        return "process {process} on {host} {does} since {since}".format_map(holder)
    except (ValueError, KeyError, TypeError):
        return "another process has just started there"
