"""The names that programs import from the package, and what loading them costs."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import nmt_cli

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", nmt_cli.__all__)
def test_each_public_name_is_that_of_its_module(name):
    loaded = getattr(nmt_cli, name)
    assert loaded is getattr(import_module(loaded.__module__), name)
    assert loaded.__name__ == name
    assert name in dir(nmt_cli)


def test_the_package_itself_loads_nothing_and_other_names_are_errors():
    program = (
        "import sys, nmt_cli\n"
        "assert not {'torch', 'numpy', 'yaml', 'pydantic'} & set(sys.modules)\n"
        "try:\n    nmt_cli.Nothing\n"
        "except AttributeError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "module 'nmt_cli' has no attribute 'Nothing'\n", done.stderr


def test_documentation_imports_public_names_only():
    for document in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]:
        text = document.read_text(encoding="utf-8")
        assert not re.findall(r"^ *(?:from nmt_cli\.\S+ import|import nmt_cli\.).*", text, re.M)
