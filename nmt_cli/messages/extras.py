"""Packages that may be missing: those of extras, such as matplotlib, and those ``LEFT_OUT``.

setup.py has both. An installation without torch has only what requirements-translate.txt lists.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from nmt_cli.messages.errors import UserError
from nmt_cli.messages.proposals import command

# What setup.py requires, and requirements-translate.txt lacks.
LEFT_OUT = ("torch", "sacrebleu", "sacremoses", "nltk", "requests")


@contextmanager
def importing(package: str, purpose: str, otherwise: str = "") -> Iterator[None]:
    """Raise UserError if the block imports ``package``, of an extra, and it is not installed.

    The message begins with ``purpose``, such as "report draws", and ends with ``otherwise``.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        raise UserError(f"{purpose} with {not_installed(package)}{otherwise}") from None


@contextmanager
def naming_missing_package(purpose: str, *needed_later: str) -> Iterator[None]:
    """Raise UserError if the block imports a package that an installation without torch lacks.

    The command that installs it also has those of ``needed_later`` that are missing. With torch it
    has all that are missing, so that the installation is whole.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in LEFT_OUT:
            raise
        needed = LEFT_OUT if package == "torch" else {package, *needed_later}
        packages = [n for n in LEFT_OUT if n in needed and (n == package or find_spec(n) is None)]
        why = "" if find_spec("torch") else ", as this installation only translates on a CPU"
        raise UserError(
            f"{purpose} needs {package}, which is not installed{why}; "
            f"run: {install_command(*packages)}"
        ) from None


def not_installed(package: str) -> str:
    """Return "PACKAGE, which is not installed; run: ..."."""
    return f"{package}, which is not installed; run: {install_command(package)}"


def install_command(*packages: str) -> str:
    """Return the command that installs ``packages`` for the interpreter that runs.

    It may be in an environment that is not activated.
    """
    return command(sys.executable, "-m", "pip", "install", *packages)
