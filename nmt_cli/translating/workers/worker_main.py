"""The processes in which workers translate, and the process that starts them.

The starter imports torch and loads the model once and forks the workers, so that they share its
memory, a worker starts in some milliseconds, and one that died is replaced at once. It never
computes with several threads, which would be missing in the workers. On GPUs each worker loads the
model onto its own, because a process that uses CUDA cannot be forked.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle

from nmt_cli.hardware.cpu import num_threads, set_num_threads
from nmt_cli.hardware.memory import keep_freed_memory
from nmt_cli.launch.node_workers import die_with_parent
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError, reporting_full_memory
from nmt_cli.pictures.page import as_html
from nmt_cli.translating.translation import Translation
from nmt_cli.translating.translator import Translator
from nmt_cli.translating.workers.messages import (
    AttentionOf,
    Loaded,
    Ready,
    Refused,
    WorkerModel,
)
from nmt_cli.translating.workers.worker_lines import WorkerLines

IDLE_SECONDS = 5.0  # without a line, until a worker frees its caches


def work(
    connection: Connection, load: Callable[[], Translator], *, of_service: bool = False
) -> None:
    """Translate lines and draw pages until the other end is closed.

    Each line joins the search in progress. ``WorkerLines`` documents the messages. An error that is
    no answer to a line, such as that of a GPU that has failed, ends the worker.
    """
    with suppress(BrokenPipeError, ConnectionResetError):
        try:
            with reporting_full_memory():
                translator = load()
        except UserError as error:
            connection.send(Refused(str(error), error.exit_status))
            return
        connection.send(Ready(translator.chosen))
        lines = WorkerLines(connection, partial(attention_page, translator), is_text=not of_service)
        search = translator.continuous_search(lines)
        while not lines.is_closed:
            if not lines.wait(IDLE_SECONDS):
                search.free_caches()
                lines.wait()
            search.run()
            lines.draw_page()


def attention_page(translator: Translator, wanted: AttentionOf) -> Translation:
    """Return a translation whose text is the page that is wanted, or which has an error."""
    try:
        attention = translator.attention(wanted.text, wanted.translation, wanted.model)
    except UserError as error:
        return Translation(error=str(error))
    source, target = (code.replace("_", "-") for code in (wanted.source, wanted.target))
    languages = {"source": source, "target_input": target, "target_output": target}
    return Translation(as_html(attention._replace(languages=languages)))


def _serve(control: Connection) -> None:
    """Load the model and fork a worker for each request, until the command ends."""
    model: WorkerModel = control.recv()
    logs.configure(quiet=model.quiet)
    if model.on_gpus:
        keep_freed_memory()
    set_num_threads(None)
    all_threads = num_threads()  # as many as a process uses that is alone
    set_num_threads(1)  # threads of a pool would be missing in the workers
    loaded: Translator | None = None
    if not model.on_gpus:
        try:
            with reporting_full_memory():
                loaded = Translator.load(model.path, **model.options)
        except UserError as error:
            control.send(Refused(str(error), error.exit_status))
            return
    control.send(Loaded(time.process_time()))
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
                set_num_threads(model.threads or all_threads)
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

        def load() -> Translator:
            if loaded is not None:
                return loaded
            logs.configure(quiet=model.quiet or number > 0)  # one worker reports what it loads
            return Translator.load(model.path, **{**model.options, "device": f"cuda:{number}"})

        work(connection, load, of_service=model.of_service)
        status = 0
    except BaseException:  # os._exit skips the interpreter's own traceback
        traceback.print_exc()
    finally:
        os._exit(status)


def main() -> None:
    """Serve the command at the other end of the connection that the argument names."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of workers too: the command ends them
    _serve(Connection(int(sys.argv[1])))
