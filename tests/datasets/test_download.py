import errno
import hashlib
import shutil
import time

import pytest
import requests

from nmt_cli.datasets import download
from nmt_cli.datasets.catalogue import Archive
from nmt_cli.datasets.download import fetch, refuse_small_disk
from nmt_cli.files.locks import OutputInUseError, claimed
from nmt_cli.messages.errors import OutputError, UserError
from tests.loopback_server import Fault

CONTENT = bytes(range(256)) * 4000  # more than one chunk


@pytest.fixture
def archive(server):
    url = server.put("/wmt/a.tgz", CONTENT)
    return Archive(url, len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


def test_an_archive_arrives_once(server, archive, tmp_path):
    path = fetch(archive, tmp_path / "downloads")
    assert path == tmp_path / "downloads/a.tgz"
    assert path.read_bytes() == CONTENT
    assert fetch(archive, tmp_path / "downloads") == path
    assert server.requests == [("/wmt/a.tgz", None)]
    assert [file.name for file in path.parent.iterdir()] == ["a.tgz"]


@pytest.mark.parametrize("states_length", [True, False])
def test_a_broken_download_is_named_and_continued(server, archive, tmp_path, states_length, capsys):
    server.faults = [Fault(sent=300_000, states_length=states_length), Fault(sent=0)]
    assert fetch(archive, tmp_path).read_bytes() == CONTENT
    assert server.requests[0] == ("/wmt/a.tgz", None)
    # If the connection breaks, the bytes of the last incomplete chunk of 256 KiB are lost.
    ranges = [asked for _, asked in server.requests[1:]]
    assert ranges == ["bytes=262144-" if states_length else "bytes=300000-"] * 2
    warnings = capsys.readouterr().err.splitlines()
    assert len(warnings) == 2
    assert warnings[0].startswith(f"Warning: {archive.url} ")
    assert f"of {len(CONTENT):,} bytes" in warnings[0]
    assert warnings[0].endswith("trying again (2 of 5).")


def test_the_next_run_continues_where_all_attempts_stopped(server, archive, tmp_path):
    server.faults = [Fault(sent=200_000, states_length=False)] + [Fault(status=503)] * 4
    with pytest.raises(UserError, match=r"gave 503 Service Unavailable, in the last of 5 attempts"):
        fetch(archive, tmp_path)
    assert not (tmp_path / "a.tgz").exists()
    assert fetch(archive, tmp_path).read_bytes() == CONTENT
    assert server.requests[-1] == ("/wmt/a.tgz", "bytes=200000-")


def test_a_server_without_ranges_sends_the_whole_file_again(server, archive, tmp_path):
    server.faults = [Fault(sent=400_000, states_length=False), Fault(ignores_range=True)]
    assert fetch(archive, tmp_path).read_bytes() == CONTENT
    assert len(server.requests) == 2


def test_a_transfer_without_end_is_ended(server, tmp_path, monkeypatch):
    url, right = server.put("/wmt/a.tgz", 20 * CONTENT), Archive("", 1000, "")
    monkeypatch.setattr(download, "ATTEMPTS", 2)
    received: list[int] = []
    monkeypatch.setattr(requests.Response, "iter_content", spied(received))
    with pytest.raises(UserError, match=r"bytes instead of 1,000, in the last of 2 attempts"):
        fetch(right._replace(url=url), tmp_path)
    assert received == [download.CHUNK] * 2
    assert not list(tmp_path.iterdir())


def spied(sizes, iter_content=requests.Response.iter_content):
    def spy(*arguments):
        for chunk in iter_content(*arguments):
            sizes.append(len(chunk))
            yield chunk

    return spy


def test_damaged_bytes_are_not_kept(server, archive, tmp_path, capsys):
    server.faults = [Fault(damaged=True)]
    assert fetch(archive, tmp_path).read_bytes() == CONTENT
    assert server.requests == [("/wmt/a.tgz", None)] * 2
    assert f"instead of {archive.sha256}; trying again (2 of 5)." in capsys.readouterr().err


@pytest.mark.parametrize("there", [CONTENT[:-1], CONTENT[:-1] + b"x"])
def test_a_wrong_file_of_this_name_is_replaced(archive, tmp_path, there, capsys):
    (tmp_path / "a.tgz").write_bytes(there)
    assert fetch(archive, tmp_path).read_bytes() == CONTENT
    assert f"{tmp_path}/a.tgz has " in capsys.readouterr().err


def test_a_longer_file_than_expected_is_refused(server, archive, tmp_path):
    server.put("/wmt/a.tgz", CONTENT + b"more")
    with pytest.raises(UserError, match=r"has 1,024,004 bytes instead of 1,024,000"):
        fetch(archive, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_shorter_file_than_expected_is_refused(server, archive, tmp_path):
    server.put("/wmt/a.tgz", CONTENT[:-4])
    with pytest.raises(UserError, match=r"416 .*, since the file there has fewer than 1,024,000 b"):
        fetch(archive, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_not_asked_for_again(server, archive, tmp_path):
    del server.files["/wmt/a.tgz"]
    with pytest.raises(UserError, match=r"a\.tgz cannot be downloaded: 404 Not Found\.$"):
        fetch(archive, tmp_path)
    assert len(server.requests) == 1


def test_a_busy_server_is_asked_again(server, archive, tmp_path):
    server.faults = [Fault(status=429)]
    assert fetch(archive, tmp_path).read_bytes() == CONTENT


def test_no_server_is_one_short_line(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "FIRST_PAUSE", 0.0)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    archive = Archive("http://127.0.0.1:1/a.tgz", 5, "")
    with pytest.raises(UserError) as error:
        fetch(archive, tmp_path)
    assert str(error.value) == (
        "http://127.0.0.1:1/a.tgz broke off after 0 of 5 bytes (Connection refused), in the last "
        "of 5 attempts. Run the same command again later: it continues where this one stopped."
    )


def test_pauses_grow(server, archive, tmp_path, monkeypatch):
    pauses: list[float] = []
    monkeypatch.setattr(download, "FIRST_PAUSE", 2.0)
    monkeypatch.setattr(time, "sleep", pauses.append)
    server.faults = [Fault(status=500)] * 4
    fetch(archive, tmp_path)
    assert pauses == [2, 4, 8, 16]


def test_a_full_disk_keeps_what_arrived(archive, tmp_path, monkeypatch):
    def full(self, size):
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "a.tgz.incomplete").write_bytes(CONTENT[:1000])
    monkeypatch.setattr(requests.Response, "iter_content", full)
    with pytest.raises(OutputError, match=r"a\.tgz\.incomplete could not be written: No space"):
        fetch(archive, tmp_path)
    assert (tmp_path / "a.tgz.incomplete").read_bytes() == CONTENT[:1000]


def test_a_small_disk_is_refused_before(archive, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    free = len(CONTENT) - 1
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=free))
    with pytest.raises(OutputError, match=r"1,023,999 bytes of free space, but 1,024,000 are"):
        refuse_small_disk([archive], tmp_path / "new")
    (tmp_path / "new/a.tgz.incomplete").write_bytes(b"x")
    refuse_small_disk([archive], tmp_path / "new")


def test_two_commands_do_not_download_the_same_file(archive, tmp_path):
    with claimed(tmp_path / "a.tgz", "--downloads"), pytest.raises(OutputInUseError):
        fetch(archive, tmp_path)


def test_a_server_that_stalls_is_given_up(archive, tmp_path, monkeypatch):
    def stall(*_, **__):
        raise requests.ReadTimeout("read timed out")

    monkeypatch.setattr(requests, "get", stall)
    monkeypatch.setattr(download, "FIRST_PAUSE", 0.0)
    with pytest.raises(UserError, match=r"\(nothing came for 60 seconds\)"):
        fetch(archive, tmp_path)
