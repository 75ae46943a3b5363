"""Child processes of Python that end with their parent; and blocks for slow imports."""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

PARENT = "NMT_CLI_PARENT"  # the variable with the id of the process that started this one
PR_SET_PDEATHSIG = 1  # prctl.h
NMT_CLI = "from nmt_cli.cli import main; main(prog_name='nmt-cli')"


def python_command(program: str, *arguments: str) -> list[str]:
    """Return the command that runs the text ``program`` with ``arguments`` in another process.

    ``python -m`` and ``python -c`` alone would look for every module in the current folder first,
    where a file of the user may have the name of one.
    """
    return [sys.executable, "-c", f"import sys\nsys.path[:] = {sys.path}\n{program}", *arguments]


def environment_of_child() -> dict[str, str]:
    """Return the variables for a process that will call ``end_with_parent``."""
    return {**os.environ, PARENT: str(os.getpid())}


def end_with_parent(number: signal.Signals = signal.SIGKILL, parent: int | None = None) -> None:
    """Let the kernel send this signal to this process when the thread that started it ends.

    ``parent`` is the process that started it, if no variable names it.
    """
    import ctypes  # commands that start no others need none

    parent = parent or int(os.environ.get(PARENT, os.getppid()))
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # the parent died before the call
        os.kill(os.getpid(), number)
    os.environ[PARENT] = str(os.getpid())  # for the processes that this one starts


@contextmanager
def collecting_no_garbage() -> Iterator[None]:
    """Turn garbage collection off in this block."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def without_collections() -> Iterator[None]:
    """Turn garbage collection off in this block of imports: those of torch take 9 % less.

    All objects that exist after it are left out of later collections. If torch is there already,
    nothing changes: a training before may have left garbage.
    """
    if "torch" in sys.modules:
        yield
        return
    try:
        with collecting_no_garbage():
            yield
    finally:
        if gc.isenabled():
            gc.freeze()


@contextmanager
def without_threads_of_numpy() -> Iterator[None]:
    """Let numpy's BLAS start no threads if numpy is imported in this block.

    It multiplies next to nothing here, and on two busy cores its thread took a third of numpy's
    import. The variable is removed again: torch may be imported later.
    """
    name = "OPENBLAS_NUM_THREADS"
    if "numpy" in sys.modules or name in os.environ:
        yield
        return
    os.environ[name] = "1"
    try:
        yield
    finally:
        del os.environ[name]
