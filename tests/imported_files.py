"""Which files of the package import which."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import nmt_cli

PACKAGE = Path(nmt_cli.__file__).parent


@cache
def imports_of_files() -> dict[str, set[str]]:
    """Return the files that each file imports anywhere, as paths in the package.

    Files `__init__.py` are left out: they are empty, but for the package's own.
    """
    files = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if path.name != "__init__.py"
    }
    return {file: set(_imported(file)) & files - {file} for file in files}


def _imported(file: str) -> Iterator[str]:
    for node in ast.walk(ast.parse((PACKAGE / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            modules = [f"{node.module}.{alias.name}" for alias in node.names] + [str(node.module)]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        else:
            continue
        for module in modules:
            yield f"{module.removeprefix('nmt_cli.').replace('.', '/')}.py"
