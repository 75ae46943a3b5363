"""What a command imports, found by running it in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

PROGRAM = """
import json, sys
from nmt_cli.cli import main
status = 0
try:
    main(sys.argv[1:])
except SystemExit as end:
    status = end.code
print(json.dumps([status, sorted(sys.modules)]), file=sys.stderr)
"""


class Ended(NamedTuple):
    """How a command ended."""

    status: int
    stderr: str
    modules: set[str]


def ended(arguments: Sequence[str], folder: Path) -> Ended:
    """Run ``nmt-cli`` with ``arguments`` in ``folder``, without a text on stdin."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    *stderr, last = done.stderr.splitlines()
    status, modules = json.loads(last)
    return Ended(status, "\n".join(stderr), set(modules))
