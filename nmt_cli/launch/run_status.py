"""``status.json`` in a run directory: the state of a training, its exit status and message.

torchrun turns the exit status of every failure into 1. This file has the exit status and message
that the command would have had without torchrun.
"""

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from nmt_cli.files.atomic_files import file_appearing_whole
from nmt_cli.files.file_names import STATUS
from nmt_cli.messages.errors import OutputError

State = Literal["running", "interrupted", "failed", "finished"]


class RunStatus(NamedTuple):
    """The state of a run, as its last launch wrote it."""

    state: State
    launch: str  # the id of the launch that wrote it; a restart by torchrun keeps the id
    exit_status: int | None = None  # of the command, None while it runs
    message: str = ""
    at: float = 0.0  # the time of writing, in seconds since 1970


def write_status(run_dir: Path, status: RunStatus) -> None:
    """Replace the status of ``run_dir``, if it can be written.

    A full disk must not hide the error that the status is about.
    """
    with suppress(OSError, OutputError):
        run_dir.mkdir(parents=True, exist_ok=True)
        with file_appearing_whole(run_dir / STATUS, replace=True) as stream:
            stream.write(json.dumps(status._replace(at=time.time())._asdict()).encode() + b"\n")


def read_status(run_dir: Path) -> RunStatus | None:
    """Return the status of ``run_dir``; None if it is missing or damaged."""
    try:
        status = RunStatus(**json.loads((run_dir / STATUS).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
    return status if isinstance(status.at, float) else None


def is_finished(run_dir: Path) -> bool:
    """Return whether the training in ``run_dir`` came to its end."""
    status = read_status(run_dir)
    return status is not None and status.state == "finished"
