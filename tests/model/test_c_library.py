"""The library for CPUs: which level of it is loaded."""

import ctypes
import re
import shutil
from pathlib import Path

import pytest

from nmt_cli.hardware.cpu import read_cpu
from nmt_cli.messages.errors import UserError
from nmt_cli.model.compiled import c_library as module
from nmt_cli.model.compiled.c_library import (
    FOLDER,
    LEVELS,
    LIBRARY,
    NoLibraryError,
    load_library,
)


@pytest.fixture
def folder(monkeypatch, tmp_path, library):
    """Return a copy of the folder of the library, from which it is loaded."""
    del library  # skips where the library could not be built
    copy = tmp_path / "compiled"
    shutil.copytree(FOLDER, copy)
    monkeypatch.setattr(module, "FOLDER", copy)
    monkeypatch.setattr(module, "LIBRARY", copy / LIBRARY.name)
    return copy


def test_the_fastest_level_of_the_cpu_is_chosen(folder, monkeypatch):
    real = read_cpu().flags
    for level, flags in LEVELS.items():
        if "amx" in level and not flags <= real:
            continue  # Linux would refuse it
        monkeypatch.setattr(module, "cpu_has", lambda _, needed, flags=flags: needed <= flags)
        if hasattr(ctypes.CDLL(str(folder / LIBRARY.name)), f"{level}_compute_rows"):
            assert load_library.__wrapped__().level == level


@pytest.mark.parametrize("flag", sorted(set().union(*LEVELS.values())))
def test_the_cpu_itself_says_which_flags_it_has(flag, library):
    del library  # skips where the library could not be built
    shown = read_cpu().flags
    if not shown:
        pytest.skip("/proc/cpuinfo hides all flags here")
    assert module.cpu_has(ctypes.CDLL(str(LIBRARY)), [flag]) == (flag in shown)


def test_a_cpu_whose_flags_are_hidden_gets_the_library(folder, monkeypatch):
    del folder
    best = load_library.__wrapped__().level
    monkeypatch.setattr("nmt_cli.hardware.cpu.read_system_file", lambda _: "")
    assert not read_cpu().flags
    assert load_library.__wrapped__().level == best


def test_a_cpu_without_a_level_has_no_library(folder, monkeypatch):
    del folder
    monkeypatch.setattr(module, "cpu_has", lambda *_: False)
    with pytest.raises(NoLibraryError, match="no compiled layers for this kind of CPU"):
        load_library.__wrapped__()


def test_a_missing_or_damaged_library_is_named_with_what_to_do(folder):
    library = folder / LIBRARY.name
    library.write_bytes(b"\x7fELF")
    with pytest.raises(NoLibraryError, match=r"library\.so cannot be loaded: .*Install a"):
        load_library.__wrapped__()
    library.unlink()
    with pytest.raises(NoLibraryError, match=r"library\.so was not built when .*apt install gcc"):
        load_library.__wrapped__()


def test_a_library_of_other_sources_is_refused(folder):
    load_library.__wrapped__()
    with (folder / "layers.c").open("a") as source:
        source.write("/* a change */")
    with pytest.raises(UserError, match="built from other sources than those"):
        load_library.__wrapped__()
    for each in (*folder.glob("*.c"), *folder.glob("*.h")):  # as in a wheel
        each.unlink()
    load_library.__wrapped__()


def test_setup_knows_the_levels_of_the_loader():
    text = Path("setup.py").read_text()
    assert set(re.findall(r'"(\w+)": \((?:"-march|V4)', text)) == set(LEVELS)
