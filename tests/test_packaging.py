"""What is installed with the package."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from nmt_cli.recipe.shipped import shipped_recipes

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(find_spec("setuptools") is None, reason="setuptools builds the package")
def test_recipes_and_data_files_are_installed_with_the_package(tmp_path):
    build = [sys.executable, "setup.py", "--quiet", "build_py", "--build-lib", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    shipped = tmp_path / "nmt_cli/shipped_recipes"
    installed = {path.relative_to(shipped).as_posix() for path in shipped.rglob("*.*")}
    assert installed == {"README.md", *(f"{name}.yaml" for name in shipped_recipes())}
    assert "table3/a-1-head.yaml" in installed
    package = ROOT / "nmt_cli"
    data = (path for path in package.rglob("*.*") if path.suffix not in {".py", ".pyc"})
    for path in data:
        assert (tmp_path / "nmt_cli" / path.relative_to(package)).is_file(), path
