"""Processes that the program starts import its modules, whatever the current folder holds."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import nmt_cli
from nmt_cli.launch.python_process import NMT_CLI, python_command, without_collections

PACKAGE = Path(nmt_cli.__file__).parent
# Only proposes a command, to install a package.
OTHER_USES = {"__main__.py", "messages/extras.py"}


def test_modules_in_the_current_folder_are_not_imported(tmp_path):
    for name in ("random", "click", "runpy"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a module of the user')")
    command = python_command(f"import random\n{NMT_CLI}", "--version")
    shown = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert shown.stdout.startswith("nmt-cli, version")


def test_a_process_gets_its_arguments(tmp_path):
    command = python_command("print(sys.argv[1:])", "--one", "two words")
    shown = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert shown.stdout == f"['--one', 'two words']{os.linesep}"


def test_nothing_else_starts_python():
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if "sys.executable" in path.read_text(encoding="utf-8")
    }
    assert found == {"launch/python_process.py", *OTHER_USES}


def test_torch_is_imported_without_collections_and_its_objects_are_left_out_of_later_ones(
    monkeypatch,
):
    monkeypatch.delitem(sys.modules, "torch")
    with without_collections():
        left = {"by": ["the", "block"]}
        assert not gc.isenabled()
        with without_collections():
            pass
        assert not gc.isenabled()
        assert gc.is_tracked(left)
        assert any(each is left for each in gc.get_objects())
    assert gc.isenabled()
    assert not any(each is left for each in gc.get_objects())


def test_a_process_that_has_torch_collects_as_before():
    with without_collections():
        left = {"by": ["the", "block"]}
        assert gc.isenabled()
        assert gc.is_tracked(left)
    assert any(each is left for each in gc.get_objects())


def test_numpy_starts_no_threads_and_what_is_imported_later_may():
    program = """
import os
from nmt_cli.launch.python_process import without_threads_of_numpy
with without_threads_of_numpy():
    import numpy
print(len(os.listdir("/proc/self/task")), os.environ.get("OPENBLAS_NUM_THREADS"))
"""
    for chosen, expected in ((None, "1 None"), ("2", "2")):
        environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
        if chosen is not None:
            environment["OPENBLAS_NUM_THREADS"] = chosen
        command = [sys.executable, "-c", program]
        found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert found.stdout.strip().endswith(expected)
