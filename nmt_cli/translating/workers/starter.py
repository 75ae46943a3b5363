"""The command's side of the process that starts workers; it imports no torch."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from typing import TypeVar

from nmt_cli.launch.python_process import environment_of_child, python_command
from nmt_cli.messages.errors import UserError
from nmt_cli.translating.workers.messages import WorkerModel

MOST_STARTS = 2
PROGRAM = """
from nmt_cli.launch.python_process import without_collections
with without_collections():
    from nmt_cli.translating.workers.worker_main import main
main()
"""

T = TypeVar("T")


def start_connected(program: str) -> tuple[subprocess.Popen[bytes], Connection]:
    """Start a process that runs the text ``program``; return it and the connection to it.

    Its argument is the number of the file that is its end of the connection. Raises OSError.
    """
    ours, theirs = Pipe()
    with theirs:
        process = subprocess.Popen(
            python_command(program, str(theirs.fileno())),
            # Numpy's OpenBLAS would start threads. No process here multiplies with it, and one
            # with threads must not be forked.
            env={**environment_of_child(), "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # stdout of the command is for translations
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # so that Ctrl-C in a terminal reaches only the command
        )
    return process, ours


class Starter:
    """A process that forks workers. Close it at the end: that kills all of them.

    It begins to import torch at once, and to load the model as soon as ``load`` names it.
    """

    def __init__(self) -> None:
        self._model: WorkerModel | None = None
        self._is_loaded = False
        self._process: subprocess.Popen[bytes] | None = None
        self._control: Connection | None = None
        self._workers: set[int] = set()  # the processes that it forked and was not asked about
        # ``close`` may be called while another thread waits for a worker, which begins no other
        # process then.
        self._beginning, self._is_closed = threading.Lock(), False
        self._begin()

    def load(self, model: WorkerModel) -> None:
        """Begin to load ``model``, without waiting for it."""
        self._model = model
        with suppress(OSError):  # it was killed, which ``wait_until_loaded`` notices
            self._connection.send(model)

    def wait_until_loaded(self) -> None:
        """Wait until the model is loaded, unless each worker loads it onto a GPU.

        Raises UserError if it cannot be loaded.
        """
        self._answered(self._wait)

    def start(self, number: int) -> tuple[Connection, int]:
        """Start worker ``number``; return the connection to it and its process.

        Raises UserError if the model cannot be loaded.
        """
        return self._answered(lambda: self._start(number))

    def status_of(self, process: int) -> int | None:
        """Return the exit status of a worker that has ended; None if it is unknown."""
        if process not in self._workers:  # another starter forked it and died
            return None
        self._workers.remove(process)
        with suppress(EOFError, OSError):
            self._connection.send(("status", process))
            return int(self._connection.recv())
        return None

    def close(self) -> None:
        """Kill the starter, also while another thread uses it; the kernel kills its workers."""
        with self._beginning:
            self._is_closed = True
            self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
        control, self._control = self._control, None
        if control is not None:
            control.close()
        self._is_loaded = False
        self._workers.clear()

    def _begin(self) -> None:
        self._process, self._control = start_connected(PROGRAM)
        if self._model is not None:
            self.load(self._model)

    def _answered(self, ask: Callable[[], T]) -> T:
        for _ in range(MOST_STARTS):
            with self._beginning:
                if self._is_closed:
                    raise UserError("the command ends.")
                if self._process is None:
                    self._begin()
            with suppress(EOFError, OSError):  # the process was killed
                return ask()
            with self._beginning:
                self._end()
        raise UserError(
            "the process that holds the model for the workers was killed while it started; if the "
            "memory is full, give --workers 1."
        )

    def _wait(self) -> None:
        if not self._is_loaded:
            refusal = self._connection.recv()
            if refusal is not None:
                raise refusal
            self._is_loaded = True

    def _start(self, number: int) -> tuple[Connection, int]:
        self._wait()
        ours, theirs = Pipe()
        with theirs:
            self._connection.send(("start", number))
            if (holder := self._process) is None:
                raise EOFError
            send_handle(self._connection, theirs.fileno(), holder.pid)
            process = int(self._connection.recv())
            self._workers.add(process)
            return ours, process

    @property
    def _connection(self) -> Connection:
        """The connection to the process. Raises EOFError if there is none any more."""
        if (control := self._control) is None:
            raise EOFError
        return control
