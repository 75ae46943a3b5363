"""A Python that is too old, or has no packages, gets one line."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from nmt_cli import __main__ as program

ROOT = Path(__file__).parents[1]


def test_a_python_without_packages_is_named(tmp_path):
    words = [sys.executable, "-S", "-m", "nmt_cli", "translate", "my model"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert f"Error: nmt-cli needs click, which {sys.executable} does not have; " in done.stderr


def test_an_old_python_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "version_info", (3, 9, 2))
    monkeypatch.setattr(sys, "argv", ["nmt_cli", "translate", "my model"])
    monkeypatch.setattr(program, "__file__", str(tmp_path / "nmt_cli/__main__.py"))
    problem = "Error: nmt-cli needs Python 3.10 or newer, and this is 3.9; "

    def remedy():
        with pytest.raises(SystemExit) as ended:
            program._refuse_other_python()
        return str(ended.value).removeprefix(problem)

    assert remedy() == "see docs/how-to/install.md"
    (tmp_path / "Makefile").touch()
    assert remedy() == f"run: make -C {tmp_path} setup"
    ours = tmp_path / ".venv/bin/python"
    ours.parent.mkdir(parents=True)
    ours.touch()
    assert remedy() == f"run: {ours} -m nmt_cli translate 'my model'"


@pytest.mark.parametrize("name", ["__init__.py", "__main__.py"])
def test_old_pythons_can_read_what_refuses_them(name):
    ast.parse((ROOT / "nmt_cli" / name).read_text("utf-8"), feature_version=(3, 8))


def test_make_refuses_an_old_python(tmp_path):
    old = tmp_path / "python3.9"
    code = "import sys; sys.version_info = (3, 9, 2); exec(sys.argv[1])"
    old.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{code}' \"$2\"\n", encoding="utf-8")
    old.chmod(0o755)
    words = ["make", "-s", "-C", str(ROOT), "setup", f"PYTHON={old}", f"VENV={tmp_path / 'new'}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stderr.startswith(
        f"Error: nmt-cli needs Python 3.10 or newer, and {old} is 3.9; name another one: "
        "make setup PYTHON=python3.12\n"
    )
    assert not (tmp_path / "new").exists()
