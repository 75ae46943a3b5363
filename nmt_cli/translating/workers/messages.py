"""The messages between a command and its worker processes."""

from pathlib import Path
from typing import Any, NamedTuple

from nmt_cli.translating.translation import Translation


class WorkerModel(NamedTuple):
    """What workers load: the arguments of ``Translator.load``, and the threads of each."""

    path: Path
    options: dict[str, Any]
    threads: int
    on_gpus: bool  # worker n uses GPU n
    quiet: bool


class Ready(NamedTuple):
    """A worker's first message: it has the model."""

    chosen: dict[str, str]  # of its translator


class Refused(NamedTuple):
    """A worker's first and last message: the model, the device or an option is wrong."""

    message: str
    exit_status: int


class Done(NamedTuple):
    """The translations of the lines that a worker was given."""

    translations: list[Translation]


class Bug(NamedTuple):
    """A bug that a worker met: what LinesFailedError holds."""

    first: int
    last: int
    finished: list[Translation]
    traceback: str
