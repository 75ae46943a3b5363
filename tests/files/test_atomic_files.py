import errno
import json
import os
import resource
import shutil
import signal
import stat
from pathlib import Path

import pytest

from nmt_cli.files import atomic_files
from nmt_cli.files.atomic_files import (
    directory_appearing_whole,
    file_appearing_whole,
    read_manifest,
    remove_directory,
    rewrite_manifest_without,
    verify,
)
from nmt_cli.files.file_names import MANIFEST
from nmt_cli.files.formats import OtherFormatError
from nmt_cli.files.locks import restore_replaced
from nmt_cli.messages import logs
from nmt_cli.messages.errors import DamagedError, OutputError, UserError


@pytest.fixture
def thing(tmp_path):
    """A directory of two files with a manifest."""
    directory = tmp_path / "thing"
    with directory_appearing_whole(directory) as partial:
        (partial.path / "one").write_bytes(b"first file")
        (partial.path / "two").write_bytes(b"second")
        partial.manifest["kind"] = "example"
    return directory


def names_in(directory):
    return sorted(path.name for path in directory.iterdir())


def test_a_directory_appears_with_its_manifest(thing):
    assert names_in(thing.parent) == ["thing"]
    manifest = verify(thing)
    assert manifest["kind"] == "example"
    assert manifest["files"]["two"] == {
        "bytes": 6,
        "sha256": "16367aacb67a4a017c8da8ab95682ccb390863780f7114dda0a0e0c55644c7c4",
    }


def test_nothing_appears_when_the_block_fails(tmp_path):
    def fail():
        with directory_appearing_whole(tmp_path / "new") as partial:
            (partial.path / "file").write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert names_in(tmp_path) == []


def test_an_existing_directory_is_kept_unless_replaced(thing):
    with (
        pytest.raises(UserError, match="thing already exists; add --force"),
        directory_appearing_whole(thing),
    ):
        pass
    with pytest.raises(ZeroDivisionError), directory_appearing_whole(thing, replace=True):
        raise ZeroDivisionError
    assert names_in(thing) == [MANIFEST, "one", "two"]
    with directory_appearing_whole(thing, replace=True) as partial:
        (partial.path / "three").write_bytes(b"")
    assert names_in(thing) == [MANIFEST, "three"]
    assert names_in(thing.parent) == ["thing"]


def test_what_was_replaced_by_its_link_is_gone_and_what_the_link_led_to_stays(thing, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(thing)
    with directory_appearing_whole(link, replace=True) as partial:
        (partial.path / "three").write_bytes(b"")
    assert names_in(tmp_path) == ["link", "thing"]
    assert names_in(link) == [MANIFEST, "three"]
    assert names_in(thing) == [MANIFEST, "one", "two"]
    remove_directory(link)
    restore_replaced(link)
    assert names_in(tmp_path) == ["thing"]
    link.symlink_to(thing)
    remove_directory(link)
    assert names_in(tmp_path) == ["thing"]


def test_what_cannot_be_removed_is_never_restored(thing, monkeypatch):
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    with directory_appearing_whole(thing, replace=True):
        pass
    remove_directory(thing)
    restore_replaced(thing)
    assert not thing.exists()


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "out"

    def fail():
        with file_appearing_whole(path) as stream:
            stream.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert names_in(tmp_path) == []
    with file_appearing_whole(path) as stream:
        stream.write(b"whole")
    with pytest.raises(UserError, match="out already exists"), file_appearing_whole(path):
        pass
    assert path.read_bytes() == b"whole"


@pytest.mark.parametrize("name", ["one", "two"])
def test_every_changed_byte_is_found(thing, name):
    original = (thing / name).read_bytes()
    for place in range(len(original)):
        changed = bytearray(original)
        changed[place] ^= 1
        (thing / name).write_bytes(changed)
        with pytest.raises(DamagedError, match=f"{name} has changed"):
            verify(thing)


def test_truncated_missing_and_linked_files_are_found(thing, tmp_path):
    (thing / "one").write_bytes(b"first")
    with pytest.raises(DamagedError, match=r"one has 5 bytes, manifest.json says 10"):
        verify(thing)
    (thing / "one").unlink()
    with pytest.raises(DamagedError, match="one is missing"):
        verify(thing)
    (tmp_path / "elsewhere").write_bytes(b"first file")
    (thing / "one").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DamagedError, match="not a plain file"):
        verify(thing)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{", b'{"files": 3}', b'{"files": {"a": 1}}', b"\xff", b"[" * 100_000],
)
def test_damaged_manifests_are_user_errors(thing, content):
    (thing / MANIFEST).write_bytes(content)
    with pytest.raises(DamagedError, match=r"manifest.json is damaged"):
        read_manifest(thing)


def test_every_changed_byte_of_the_manifest_is_found(thing):
    original = (thing / MANIFEST).read_bytes()
    facts = json.loads(original)
    for place in range(0, len(original), 7):
        changed = bytearray(original)
        changed[place] ^= 1
        (thing / MANIFEST).write_bytes(changed)
        if changed[place : place + 1].isspace():
            continue  # white space has no meaning
        with pytest.raises(DamagedError, match="manifest"):
            read_manifest(thing)
    del facts["files"]["one"]
    (thing / MANIFEST).write_text(json.dumps(facts))
    with pytest.raises(DamagedError, match=r"manifest.json has changed"):
        verify(thing)


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "a/b", "..", "", ".hidden", "a\nb", "a\\b"]
)
def test_a_manifest_cannot_name_files_elsewhere(thing, name):
    files = {name: {"bytes": 1, "sha256": "00"}}
    (thing / MANIFEST).write_text(json.dumps({"format_version": 1, "files": files}))
    with pytest.raises(DamagedError, match="outside its directory"):
        read_manifest(thing)


def test_a_newer_format_version_is_named(thing):
    (thing / MANIFEST).write_text('{"kind": "average", "format_version": 99, "files": {}}')
    with pytest.raises(OtherFormatError, match=r"format version 99 of its kind \(average\)"):
        read_manifest(thing)


@pytest.mark.parametrize("version", ["null", "0", "true", '"2"'])
def test_what_is_no_format_version_is_damage(thing, version):
    (thing / MANIFEST).write_text(
        f'{{"kind": "average", "format_version": {version}, "files": {{}}}}'
    )
    with pytest.raises(DamagedError, match="its format version is"):
        read_manifest(thing)


def test_a_file_can_be_dropped_and_the_rest_stays_verifiable(thing):
    rewrite_manifest_without(thing, "one")
    assert list(verify(thing)["files"]) == ["two"]
    assert names_in(thing) == [MANIFEST, "two"]


def test_a_missing_folder_is_named(tmp_path):
    with (
        pytest.raises(UserError, match="absent is not a directory; make it first"),
        file_appearing_whole(tmp_path / "absent" / "file"),
    ):
        pass


@pytest.mark.parametrize("name", [".", "..", "/"])
def test_what_has_no_name_of_its_own_is_not_written(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for appearing_whole in (directory_appearing_whole, file_appearing_whole):
        with (
            pytest.raises(UserError, match="give a path that ends in a name"),
            appearing_whole(Path(name), replace=True),
        ):
            pass


def test_only_plain_files_are_replaced(tmp_path):
    with (
        pytest.raises(UserError, match="is a directory; give the name of a file"),
        file_appearing_whole(tmp_path, replace=True),
    ):
        pass


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("appearing_whole", [directory_appearing_whole, file_appearing_whole])
def test_a_link_to_nothing_is_named(tmp_path, appearing_whole, replace):
    (tmp_path / "link").symlink_to("gone")
    with pytest.raises(UserError) as caught:
        appearing_whole(tmp_path / "link", replace=replace).__enter__()
    assert str(caught.value) == (
        f"{tmp_path}/link is a link to gone, which does not exist; remove the link, or choose "
        "another name."
    )
    assert names_in(tmp_path) == ["link"]


def test_a_full_disk_leaves_what_was_there(thing):
    before = verify(thing)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, limits[1]))
    try:
        with (
            pytest.raises(OutputError, match="thing could not be written: File too large"),
            directory_appearing_whole(thing, replace=True) as partial,
        ):
            (partial.path / "large").write_bytes(bytes(10_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, previous)
    assert verify(thing) == before
    assert names_in(thing.parent) == ["thing"]


def test_files_are_synced_before_they_get_their_name(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(
        atomic_files, "_sync", lambda path: synced.append((path.name, (tmp_path / "new").exists()))
    )
    with directory_appearing_whole(tmp_path / "new") as partial:
        (partial.path / "file").write_bytes(b"x")
    before = {name for name, renamed in synced if not renamed}
    assert {"file", MANIFEST} <= before
    assert (tmp_path.name, True) in synced  # the rename itself


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_that_cannot_sync_folders_is_no_error(tmp_path, monkeypatch, number):
    fsync = os.fsync

    def sync_files_only(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", sync_files_only)
    with directory_appearing_whole(tmp_path / "folder" / "new") as partial:
        (partial.path / "file").write_bytes(b"x")
    assert (tmp_path / "folder" / "new" / "file").read_bytes() == b"x"
    number = errno.EIO
    with (
        pytest.raises(OutputError, match="look for failures of the disk"),
        directory_appearing_whole(tmp_path / "other"),
    ):
        pass


def test_of_two_processes_that_write_one_directory_the_second_is_refused(tmp_path):
    """Also where a file system has no locks: the kernel renames no directory onto another."""

    def write_while_another_writes():
        with directory_appearing_whole(tmp_path / "new") as late:
            with directory_appearing_whole(tmp_path / "new") as early:
                assert early.path != late.path
                (early.path / "file").write_bytes(b"early")
            (late.path / "file").write_bytes(b"late")

    with pytest.raises(UserError, match="new was made by another process meanwhile"):
        write_while_another_writes()
    assert (tmp_path / "new" / "file").read_bytes() == b"early"
    assert names_in(tmp_path) == ["new"]


def test_of_two_processes_that_write_one_file_the_second_is_refused(tmp_path):
    def write_while_another_writes():
        with file_appearing_whole(tmp_path / "new") as late:
            with file_appearing_whole(tmp_path / "new") as early:
                early.write(b"early")
            late.write(b"late")

    with pytest.raises(UserError, match="new already exists"):
        write_while_another_writes()
    assert (tmp_path / "new").read_bytes() == b"early"
    assert names_in(tmp_path) == ["new"]


def test_what_goes_to_a_device_or_a_pipe_arrives_there(tmp_path):
    with file_appearing_whole(Path("/dev/null")) as stream:
        stream.write(b"x" * 100_000)
    assert Path("/dev/null").is_char_device()
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with file_appearing_whole(tmp_path / "pipe") as stream:
        stream.write(b"through a pipe")
    assert os.read(reader, 100) == b"through a pipe"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_device_that_takes_nothing_is_named():
    def write():
        with file_appearing_whole(Path("/dev/full")) as stream:
            stream.write(b"x")

    with pytest.raises(OutputError) as caught:
        write()
    assert (
        str(caught.value)
        == "/dev/full could not be written: No space left on device; free some space."
    )


def test_the_advice_fits_the_failure_of_the_disk(tmp_path):
    def fail(number):
        with file_appearing_whole(tmp_path / "file"):
            raise OSError(number, os.strerror(number))

    with pytest.raises(OutputError, match=r"No space left .* free some space and run again"):
        fail(errno.ENOSPC)
    with pytest.raises(OutputError) as caught:
        fail(errno.EIO)
    assert str(caught.value) == (
        f"{tmp_path / 'file'} could not be written: Input/output error. Nothing half-written was "
        "left; look for failures of the disk in the system's log (dmesg), or choose another disk "
        "and run again."
    )
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO])
def test_failed_writes_are_distinguished_from_other_failures(number):
    assert atomic_files.is_failed_write(OSError(number, "x"))
    assert not atomic_files.is_failed_write(OSError(errno.EACCES, "x"))


def test_checking_large_directories_shows_its_progress(tmp_path, monkeypatch, capfd):
    with directory_appearing_whole(tmp_path / "large") as partial:
        (partial.path / "a").write_bytes(bytes(3 << 20))
    logs.configure(quiet=False)
    monkeypatch.setattr(logs, "SECONDS_BETWEEN_PLAIN_REPORTS", 0.0)
    verify(tmp_path / "large")
    assert capfd.readouterr().err == ""  # it takes no time
    monkeypatch.setattr(atomic_files, "LEAST_MIB_SHOWN", 3)
    verify(tmp_path / "large")
    assert f"Checking {tmp_path / 'large'}: 3 of 3 MiB, " in capfd.readouterr().err
