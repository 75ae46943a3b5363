"""What a command imports, found by running it in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

PROGRAM = """
import json, sys
from nmt_cli.cli import main
status = 0
try:
    main(sys.argv[1:], prog_name="nmt-cli")
except SystemExit as end:
    status = end.code
print(json.dumps([status, sorted(sys.modules)]), file=sys.stderr)
"""


class Ended(NamedTuple):
    """How a command ended."""

    status: int
    stdout: str
    stderr: str
    modules: set[str]


def ended(
    arguments: Sequence[str], folder: Path, variables: Mapping[str, str] | None = None
) -> Ended:
    """Run ``nmt-cli`` with ``arguments`` in ``folder``, without a text on stdin.

    ``variables`` are added to the environment.
    """
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=folder,
        env={**os.environ, **(variables or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    *stderr, last = done.stderr.splitlines()
    status, modules = json.loads(last)
    return Ended(status, done.stdout, "\n".join(stderr), set(modules))
