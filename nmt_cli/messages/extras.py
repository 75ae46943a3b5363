"""Packages that may be missing: those of an extra, such as "report", and those for training.

setup.py has the extras. An installation that only translates lacks the packages for training.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from nmt_cli.messages.errors import UserError
from nmt_cli.messages.proposals import command

# The modules of each extra that are imported here; messages name the package of the first.
PACKAGES: dict[str, tuple[str, ...]] = {
    "ctranslate2": ("ctranslate2",),
    "data": ("requests",),
    "documents": ("markdown_it",),
    "huggingface": ("transformers",),
    "langid": ("py3langid",),
    "memory": ("rapidfuzz",),
    "parsing": ("nltk",),
    "report": ("matplotlib",),
    "serve": ("starlette", "uvicorn", "py3langid", "prometheus_client"),
    "text": ("sentencex",),
}
OTHER_NAMES = {"markdown_it": "markdown-it-py"}  # of packages unlike those of their modules


# What setup.py requires, and requirements-translate.txt lacks.
FOR_TRAINING = ("torch", "sacrebleu", "sacremoses")


@contextmanager
def importing(extra: str, purpose: str, otherwise: str = "") -> Iterator[None]:
    """Raise UserError if the block imports a package of ``extra`` that is not installed.

    The message begins with ``purpose``, such as "report draws", and ends with ``otherwise``.
    """
    packages = PACKAGES[extra]
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in packages:
            raise
        raise UserError(f"{purpose} with {not_installed(extra)}{otherwise}") from None


@contextmanager
def naming_missing_package(purpose: str, *, trains: bool = False) -> Iterator[None]:
    """Raise UserError if the block imports a package that an installation for translating lacks.

    The command that installs it has all that are missing, if the block ``trains`` or needs torch.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in FOR_TRAINING:
            raise
        packages = [package]
        if trains or package == "torch":  # what uses torch scores, too
            packages = [n for n in FOR_TRAINING if n == package or find_spec(n) is None]
        raise UserError(
            f"{purpose} needs {package}, which is not installed, as this installation only "
            f"translates on a CPU; run: {install_command(*packages)}"
        ) from None


def not_installed(extra: str) -> str:
    """Return "PACKAGE, which is not installed; run: ..." for the first package of ``extra``."""
    packages = [OTHER_NAMES.get(module, module) for module in PACKAGES[extra]]
    return f"{packages[0]}, which is not installed; run: {install_command(*packages)}"


def install_command(*packages: str) -> str:
    """Return the command that installs ``packages`` for the interpreter that runs.

    It may be in an environment that is not activated.
    """
    return command(sys.executable, "-m", "pip", "install", *packages)
