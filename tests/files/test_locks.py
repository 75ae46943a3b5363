import errno
import fcntl
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nmt_cli.files.atomic_files import file_appearing_whole
from nmt_cli.files.locks import (
    LockHeldError,
    OutputInUseError,
    UnwritableOutputError,
    claimed,
    locked,
    restore_replaced,
)
from nmt_cli.files.temporary_names import temporary_path

ROOT = Path(__file__).parents[2]


def tree(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def claim(output):
    with claimed(output, "--output"):
        pass


@pytest.fixture
def killed(tmp_path):
    """Kill a process while it holds the claim of tmp_path/new; return its id."""
    code = (
        "import pathlib, time; from nmt_cli.files.locks import claimed\n"
        f"with claimed(pathlib.Path({str(tmp_path / 'new')!r}), ''): print(flush=True); input()"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(OutputInUseError, match=f"new is in use: process {process.pid} on "):
            claim(tmp_path / "new")
        process.send_signal(signal.SIGKILL)
    return process.pid


def test_the_second_process_is_refused_until_the_first_is_killed(tmp_path, killed):
    assert tree(tmp_path) == [".lock-new"]
    claim(tmp_path / "new")
    assert tree(tmp_path) == []


def test_who_holds_an_output_is_named(tmp_path):
    with claimed(tmp_path / "new", "--output"):
        with pytest.raises(
            OutputInUseError,
            match=rf"new is in use: process {os.getpid()} on \S+ writes it since 2\S+\+00:00; "
            r"wait for it, or choose another --output\.$",
        ):
            claim(tmp_path / "new")
        claim(tmp_path / "other")


def test_folders_that_were_made_for_a_lock_go_with_it(tmp_path):
    with locked(tmp_path / "made" / "for it" / "lock", "does nothing"):
        (tmp_path / "made" / "file").write_bytes(b"")
    assert tree(tmp_path) == ["made", "made/file"]
    (tmp_path / "empty").mkdir()
    with locked(tmp_path / "empty" / "lock", "does nothing"):
        pass
    assert "empty" in tree(tmp_path)  # it was there before


def test_a_lock_that_was_removed_while_it_was_opened_locks_nothing(tmp_path, monkeypatch):
    """Its last holder unlinked it; a third process may already hold a new file of that name."""
    lock, flock = tmp_path / "lock", fcntl.flock

    def flock_after_another_has_gone(*arguments):
        monkeypatch.setattr(fcntl, "flock", flock)
        lock.unlink()
        flock(*arguments)

    monkeypatch.setattr(fcntl, "flock", flock_after_another_has_gone)
    with locked(lock, "is first"), pytest.raises(LockHeldError, match="is first since"):  # noqa: SIM117
        with locked(lock, "is second"):
            pass


def test_without_locks_nothing_that_others_may_be_writing_is_removed(tmp_path, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    partial = temporary_path(tmp_path / "new", "partial")
    partial.mkdir()
    temporary_path(tmp_path / "new", "replaced").mkdir()
    with claimed(tmp_path / "new", "--output"):
        assert tree(tmp_path) == [partial.name, "new"]
    assert tree(tmp_path) == [partial.name, "new"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    def refuse(path, *_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    refused = (
        f"^{re.escape(str(tmp_path))} cannot be used: Permission denied; choose another --output"
    )
    with pytest.raises(UnwritableOutputError, match=refused):
        claim(tmp_path / "new")


@pytest.mark.skipif(
    not Path("/proc/self").exists(), reason="needs /proc, where no file can be made"
)
def test_a_folder_in_which_nothing_can_be_made_is_not_in_use():
    with pytest.raises(UnwritableOutputError, match=r"^/proc cannot be used: "):
        claim(Path("/proc/model"))


@pytest.mark.parametrize("length", [206, 249, 250, 255])
def test_an_output_may_have_the_longest_name_there_is(tmp_path, length):
    path = tmp_path / ("x" * length)
    for content in (b"old", b"new"):
        with claimed(path, "--output"):
            with pytest.raises(OutputInUseError):
                claim(path)
            with file_appearing_whole(path, replace=True) as stream:
                stream.write(content)
    assert path.read_bytes() == b"new"
    assert tree(tmp_path) == [path.name]


def test_devices_are_not_locked():
    with claimed(Path("/dev/null"), "--output"):
        claim(Path("/dev/null"))
    assert not Path("/dev/.lock-null").exists()


def test_what_a_killed_process_was_replacing_is_found_but_not_while_it_works(tmp_path):
    temporary_path(tmp_path / "new", "replaced").mkdir()
    with claimed(tmp_path / "other", "--output"), locked(tmp_path / ".lock-new", "replaces it"):
        restore_replaced(tmp_path / "new")
        assert not (tmp_path / "new").exists()
    restore_replaced(tmp_path / "new")
    assert tree(tmp_path) == ["new"]
