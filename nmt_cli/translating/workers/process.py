"""The processes in which workers translate, and the process that starts them.

The starter loads the model once and forks the workers, so that they share its memory, and a worker
that died is replaced at once. On GPUs each worker loads the model onto its own, because a process
that uses CUDA cannot be forked.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any, Protocol

from nmt_cli.hardware.device import set_num_threads
from nmt_cli.hardware.memory import keep_freed_memory
from nmt_cli.hardware.thread_waiting import following_load
from nmt_cli.launch.node_workers import PARENT, die_with_parent
from nmt_cli.messages import logs
from nmt_cli.messages.errors import LinesFailedError, UserError
from nmt_cli.translating.request import Request
from nmt_cli.translating.translation import Translation
from nmt_cli.translating.translator import Translator
from nmt_cli.translating.workers.messages import Bug, Done, Ready, Refused, WorkerModel

MOST_STARTS = 2
MODULE = "nmt_cli.translating.workers.process"


class Starter:
    """A process that forks workers. Close it at the end: that kills all of them."""

    def __init__(self, model: WorkerModel) -> None:
        self._model = model
        self._process: subprocess.Popen[bytes] | None = None
        self._control: Connection | None = None

    def start(self, number: int) -> tuple[Connection, int]:
        """Start worker ``number``; return the connection to it and its process.

        Raises UserError if the model cannot be loaded.
        """
        for _ in range(MOST_STARTS):
            with suppress(EOFError, OSError):  # the process was killed
                return self._start(number)
            self.close()
        raise UserError(
            "the process that holds the model for the workers was killed while it started; if the "
            "memory is full, translate without --workers."
        )

    def status_of(self, process: int) -> int | None:
        """Return the exit status of a worker that has ended; None if it is unknown."""
        with suppress(EOFError, OSError):
            return int(self._ask(("status", process)))
        return None

    def close(self) -> None:
        """Kill the starter; the kernel then kills its workers."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._control is not None:
            self._control.close()
        self._process = self._control = None

    def _start(self, number: int) -> tuple[Connection, int]:
        if self._process is None:
            self._begin()
        ours, theirs = Pipe()
        with theirs:
            assert self._control is not None
            assert self._process is not None
            self._control.send(("start", number))
            send_handle(self._control, theirs.fileno(), self._process.pid)
            return ours, int(self._control.recv())

    def _begin(self) -> None:
        self._control, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", MODULE, str(theirs.fileno())],
                env={**os.environ, PARENT: str(os.getpid())},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # stdout of the command is for translations
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # so that Ctrl-C in a terminal reaches only the command
            )
        answer = self._ask(self._model)
        if isinstance(answer, Refused):
            error = UserError(answer.message)
            error.exit_status = answer.exit_status
            raise error

    def _ask(self, request: object) -> Any:
        if self._control is None:
            raise EOFError
        self._control.send(request)
        return self._control.recv()


class LineTranslator(Protocol):
    """What a worker needs of a translator."""

    chosen: dict[str, str]

    def translate_window(self, lines: Sequence[str | Request]) -> list[Translation]:
        """Return the translation of each line."""
        ...


def work(connection: Connection, load: Callable[[], LineTranslator]) -> None:
    """Translate the lists of lines that come, until the other end is closed."""
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            translator = load()
        except UserError as error:
            connection.send(Refused(str(error), error.exit_status))
            return
        connection.send(Ready(translator.chosen))
        while True:
            connection.send(_answer(translator, connection.recv()))


def _answer(translator: LineTranslator, lines: Sequence[str | Request]) -> Done | Bug:
    try:
        return Done(translator.translate_window(lines))
    except LinesFailedError as error:
        report = "".join(traceback.format_exception(error.__cause__ or error))
        return Bug(error.first, error.last, list(error.finished), report)


def _serve(control: Connection) -> None:
    """Load the model and fork a worker for each request, until the command ends."""
    model: WorkerModel = control.recv()
    logs.configure(quiet=model.quiet)
    keep_freed_memory()
    set_num_threads(1)  # threads of a pool would be missing in the workers
    loaded: Translator | None = None
    if not model.on_gpus:
        try:
            loaded = Translator.load(model.path, **model.options)
        except UserError as error:
            control.send(Refused(str(error), error.exit_status))
            return
    control.send(None)
    gc.freeze()  # collecting garbage would copy the pages that workers share
    with suppress(EOFError, ConnectionResetError):
        while True:
            kind, number = control.recv()
            if kind == "status":
                control.send(os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]))
                continue
            handle = recv_handle(control)
            process = os.fork()
            if process == 0:
                control.close()
                _be_worker(Connection(handle), number, model, loaded)
            os.close(handle)
            control.send(process)


def _be_worker(
    connection: Connection, number: int, model: WorkerModel, loaded: Translator | None
) -> None:
    """Work in a process that was just forked; never returns."""
    status = 1
    try:
        die_with_parent()
        set_num_threads(model.threads)

        def load() -> Translator:
            if loaded is not None:
                return loaded
            logs.configure(quiet=model.quiet or number > 0)  # one worker reports what it loads
            return Translator.load(model.path, **{**model.options, "device": f"cuda:{number}"})

        with following_load(model.threads, warns=False):
            work(connection, load)
        status = 0
    except BaseException:  # os._exit skips the interpreter's own traceback
        traceback.print_exc()
    finally:
        os._exit(status)


if __name__ == "__main__":
    die_with_parent()
    _serve(Connection(int(sys.argv[1])))
