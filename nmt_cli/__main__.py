"""``python -m nmt_cli``, to start workers with torchrun: ``torchrun ... -m nmt_cli train``.

It may be run by any Python of the machine: this file must be valid in versions before 3.10.
"""

import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

OLDEST = (3, 10)  # as in setup.py
NEEDED = ("click", "numpy")  # all commands need the first, and most the second


def _refuse_other_python() -> None:
    """End with one line if this Python is too old or lacks what nmt-cli needs."""
    checkout = Path(__file__).parents[1]
    ours = checkout / ".venv/bin/python"
    missing = [name for name in NEEDED if find_spec(name) is None]
    if sys.version_info < OLDEST:
        problem = "nmt-cli needs Python 3.10 or newer, and this is {}.{}".format(*sys.version_info)
    elif missing:
        problem = f"nmt-cli needs {missing[0]}, which {sys.executable} does not have"
    else:
        return
    remedy = "see docs/how-to/install.md"
    if ours.exists() and Path(sys.prefix) != ours.parents[1]:
        remedy = f"run: {shlex.join([str(ours), '-m', 'nmt_cli', *sys.argv[1:]])}"
    elif (checkout / "Makefile").exists():
        remedy = f"run: make -C {shlex.quote(str(checkout))} setup"
    sys.exit(f"Error: {problem}; {remedy}")


if __name__ == "__main__":
    _refuse_other_python()
    from nmt_cli.cli import main

    main(prog_name="nmt-cli")
