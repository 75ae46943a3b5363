"""``status.json`` in a run directory: how a training stands, for who cannot see its exit status.

torchrun turns every failure into status 1; here stand the status and the message that a process
of its own would have ended with.
"""

import json
import time
from pathlib import Path
from typing import Literal, NamedTuple

from nmt_cli.atomic_files import file_appearing_whole
from nmt_cli.file_names import STATUS

State = Literal["running", "interrupted", "failed", "finished"]


class RunStatus(NamedTuple):
    """The last word of a launch on its run."""

    state: State
    launch: str  # which launch says so; restarts by torchrun are the same one
    exit_status: int | None = None  # of the command, None while it runs
    message: str = ""
    at: float = 0.0  # when, in seconds since 1970


def write_status(run_dir: Path, status: RunStatus) -> None:
    """Replace the status of ``run_dir``."""
    run_dir.mkdir(parents=True, exist_ok=True)
    with file_appearing_whole(run_dir / STATUS, replace=True) as stream:
        stream.write(json.dumps(status._replace(at=time.time())._asdict()).encode() + b"\n")


def read_status(run_dir: Path) -> RunStatus | None:
    """Return the status of ``run_dir``; None where there is none that can be read."""
    try:
        status = RunStatus(**json.loads((run_dir / STATUS).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
    return status if isinstance(status.at, float) else None
