import os
import platform
import re
import time

import pytest

from nmt_cli.files.temporary_names import is_set_aside, remove_leftovers, temporary_path

BOOT, CHANCE = "0a1b2c3d", "00c0ffee"
OTHER_HOST = f"elsewhere-{BOOT}-{CHANCE}"


def names_in(directory):
    return sorted(path.name for path in directory.iterdir())


def make(*paths):
    for path in paths:
        path.mkdir()
        (path / "file").write_bytes(b"x")


def test_no_two_temporary_names_are_equal(tmp_path):
    """The process id is the same here, as it may be on two hosts or in two containers."""
    assert len({temporary_path(tmp_path / "new", "partial") for _ in range(100)}) == 100


@pytest.mark.parametrize("host", ["", "host.example.org", "a-b", "x" * 300, "größe"])
def test_any_host_has_names_that_are_found_again(tmp_path, monkeypatch, host):
    monkeypatch.setattr(platform, "node", lambda: host)
    make(temporary_path(tmp_path / "step-00000003", "partial"))
    remove_leftovers(tmp_path, re.compile(r"step-\d+"))
    assert names_in(tmp_path) == []


def test_leftovers_of_killed_processes_are_removed(tmp_path):
    thing = tmp_path / "thing"
    make(thing, *(temporary_path(thing, why) for why in ("partial", "delete", "replaced")))
    make(tmp_path / f".partial-thing-{platform.node().replace('-', '_')}-{BOOT}-{CHANCE}")
    temporary_path(tmp_path / "thing", "partial").write_bytes(b"a file")
    others = [".partial-thing", ".partial-thing-x-1", f".partial-other-{OTHER_HOST}", ".thing-12"]
    make(*(tmp_path / name for name in others))
    remove_leftovers(tmp_path, "thing")
    assert names_in(tmp_path) == sorted([*others, "thing"])


def test_what_another_host_may_be_writing_is_left(tmp_path):
    partial = tmp_path / f".partial-thing-{OTHER_HOST}"
    make(partial)
    long_ago = time.time() - 3 * 86_400
    os.utime(partial, (long_ago, long_ago))
    remove_leftovers(tmp_path, "thing")  # a file in it has changed just now
    assert names_in(tmp_path) == [partial.name]
    os.utime(partial / "file", (long_ago, long_ago))
    remove_leftovers(tmp_path, "thing")
    assert names_in(tmp_path) == []


def test_what_was_being_replaced_gets_its_name_back(tmp_path):
    make(tmp_path / f".replaced-thing-{OTHER_HOST}")
    assert is_set_aside(tmp_path / "thing")
    assert not is_set_aside(tmp_path / "other")
    remove_leftovers(tmp_path, "thing")
    assert names_in(tmp_path) == ["thing"]
    assert not is_set_aside(tmp_path / "thing")


LONG = ["x" * 210, "x" * 211, "x" * 255, "ü" * 127, "ü" * 120 + ".gz"]


@pytest.mark.parametrize("name", LONG)
def test_names_of_any_length_have_temporary_names_that_are_found_again(tmp_path, monkeypatch, name):
    monkeypatch.setattr(platform, "node", lambda: "h" * 300)
    thing = tmp_path / name
    others = [temporary_path(tmp_path / f"{name[:-1]}y", "partial")]
    make(thing, *others, *(temporary_path(thing, why) for why in ("partial", "delete", "replaced")))
    assert not is_set_aside(thing)
    remove_leftovers(tmp_path, name)
    assert names_in(tmp_path) == sorted([name, others[0].name])
    thing.rename(temporary_path(thing, "replaced"))
    assert is_set_aside(thing)
    remove_leftovers(tmp_path, name)
    assert names_in(tmp_path) == sorted([name, others[0].name])
