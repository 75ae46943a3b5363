"""The processes in which workers translate, and the process that starts them.

The starter imports torch and loads the model once and forks the workers, so that they share its
memory, a worker starts in some milliseconds, and one that died is replaced at once. It never
computes with several threads, which would be missing in the workers. On GPUs each worker loads the
model onto its own, because a process that uses CUDA cannot be forked.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle

from nmt_cli.corpus.text.glossary import Glossary
from nmt_cli.hardware.cpu import num_threads, set_num_threads
from nmt_cli.hardware.memory import keep_freed_memory
from nmt_cli.launch.python_process import end_with_parent
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError, reporting_full_memory
from nmt_cli.pictures.attention import as_html
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.interface.translation import Translation
from nmt_cli.translating.scheduling.background import BackgroundThread
from nmt_cli.translating.scheduling.continuous_search import LineSource
from nmt_cli.translating.shown_attention import languages_of
from nmt_cli.translating.translator import Translator
from nmt_cli.translating.workers import messages

IDLE_SECONDS = 5.0  # without a line, until a worker frees its caches
# After which Python lets another thread go on: a step returns from the library several times, and
# must not wait for 5 ms each time while a large line is prepared.
SECONDS_OF_A_THREAD = 0.0005


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
            connection.send(messages.refusal(error))
            return
        connection.send(messages.Ready(translator.chosen))
        lines = WorkerLines(connection, translator, is_text=not of_service)
        search = translator.continuous_search(lines)
        while not lines.is_closed:
            if not lines.wait(IDLE_SECONDS):
                search.free_caches()
                lines.wait()
            search.run()


class WorkerLines(LineSource[int]):
    """The lines of a worker, and pages, which are drawn beside the steps of the search.

    A message is a list of numbers, each with a request, with what several lines share (``Shared``),
    or with the text of such a line (``TextOf``), maybe as ``OneOfMany``; None withdraws what came
    under the number. The answers are lists of numbers, each with a translation or a bug; None
    confirms that it is withdrawn. Messages and answers are exchanged in ``wait`` and after each
    step of the search.
    """

    def __init__(self, connection: Connection, translator: Translator, *, is_text: bool) -> None:
        """``translator`` draws the pages. ``is_text`` is as in ``LineSource``."""
        self.is_text, self.background = is_text, None if is_text else BackgroundThread()
        self.is_closed = False  # the other end was closed
        self._connection, self._translator = connection, translator
        # ``Connection.poll`` makes such an object each time: 30 µs a step.
        self._arrivals = select.poll()
        self._arrivals.register(connection.fileno(), select.POLLIN)
        self._waiting: dict[int, Request] = {}  # in order
        self._pages: dict[int, messages.AttentionOf] = {}  # that wait
        self._drawing: set[int] = set()  # those that are drawn in the background
        self._shared: dict[int, Request] = {}
        self._of_many: set[int] = set()  # without an answer
        self._withdrawn: set[int] = set()  # since the last step
        self._answers: list[tuple[int, messages.Answer]] = []  # that were not sent yet

    def wait(self, seconds: float | None = None) -> bool:
        """Send the answers, and wait for a message; return False if ``seconds`` passed without one.

        None waits for ever. Does not wait if a line or a page is left. No line may be in the
        search.
        """
        has_come = self._exchange(seconds)
        self._draw_first()
        self._withdrawn.clear()  # these were answered before
        return has_come or bool(self._waiting)

    def take(self) -> tuple[int, Request] | None:
        """Return the next line; None if there is none now."""
        for number in self._waiting:
            return number, self._waiting.pop(number)
        return None

    def take_withdrawn(self, inside: Collection[int]) -> Collection[int]:
        """Exchange messages; return the lines that were withdrawn, all if the end was closed."""
        self._exchange(0)
        self._draw_first()
        if self.is_closed:
            return list(inside)
        withdrawn, self._withdrawn = self._withdrawn, set()
        return withdrawn

    def is_one_of_many(self, line: int) -> bool:
        """Return whether it came as a line of a large batch."""
        return line in self._of_many

    def answer(self, line: int, answer: Translation | BaseException) -> None:
        """Send the translation of a line after this step."""
        self._of_many.discard(line)
        if isinstance(answer, BaseException):
            shown = "".join(traceback.format_exception(answer))
            answer = messages.WorkerBugError(f"in a worker process:\n{shown}")
        self._answers.append((line, answer))

    def _take_page(self, number: int, page: Translation | BaseException) -> None:
        if number in self._drawing:
            self._drawing.remove(number)
            self.answer(number, page)

    def _draw_first(self) -> None:
        """Draw the first page that waits: in the background, if other threads may use the model."""
        for number in self._pages:
            wanted = self._pages.pop(number)
            work = partial(attention_page, self._translator, wanted)
            if self.background is not None and self._translator.may_be_shared:
                self._drawing.add(number)
                self.background.do(len(wanted.text), work, partial(self._take_page, number))
                return
            try:
                self.answer(number, work())
            except Exception as error:
                self.answer(number, error)
            return

    def _exchange(self, seconds: float | None) -> bool:
        """Send the answers and receive what has come; return whether anything has.

        Waits for that, at most ``seconds``, if no line is left.
        """
        has_come = False
        try:
            self._send_answers()
            milliseconds = None if seconds is None else 1_000 * seconds
            is_waiting = self._waiting or self._pages
            while self._arrivals.poll(0 if is_waiting or has_come else milliseconds):
                for number, item in self._connection.recv():
                    self._receive(number, item)
                has_come = True
            self._send_answers()
        except (EOFError, OSError):
            self._waiting.clear()
            self._pages.clear()
            self._drawing.clear()
            has_come = self.is_closed = True
        return has_come

    def _receive(self, number: int, item: messages.ToWorker) -> None:
        if isinstance(item, messages.OneOfMany):
            self._of_many.add(number)
            self._receive(number, item.line)
        elif isinstance(item, messages.Shared):
            self._shared[number] = _with_terms(item.request)
        elif isinstance(item, messages.TextOf):
            self._waiting[number] = self._shared[item.shared]._replace(
                text=item.text, line=item.line
            )
        elif isinstance(item, messages.AttentionOf):
            self._pages[number] = item
        elif item is not None:
            self._waiting[number] = item
        else:
            waiting = self._waiting, self._shared, self._pages
            if not [each.pop(number) for each in waiting if number in each]:
                self._withdrawn.add(number)
            self._drawing.discard(number)
            self._of_many.discard(number)
            self._answers.append((number, None))

    def _send_answers(self) -> None:
        if self._answers:
            self._connection.send(self._answers)
            self._answers = []


def _with_terms(request: Request) -> Request:
    """Return a request whose terms are ready to be found; if they are wrong, it has the error."""
    if not isinstance(request.glossary, Mapping):
        return request
    try:
        return request._replace(glossary=Glossary.of(request.glossary))
    except ValueError as error:
        return request._replace(error=str(error))


def attention_page(translator: Translator, wanted: messages.AttentionOf) -> Translation:
    """Return a translation whose text is the page that is wanted, or which has an error."""
    try:
        attention = translator.attention(wanted.text, wanted.translation, wanted.model)
    except UserError as error:
        return Translation(error=str(error))
    languages = languages_of(wanted.source, wanted.target)
    return Translation(as_html(attention._replace(languages=languages)))


def _serve(control: Connection) -> None:
    """Load the model and fork a worker for each request, until the command ends."""
    model: messages.WorkerModel = control.recv()
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
            control.send(messages.refusal(error))
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
                set_num_threads(model.threads or all_threads)
                _be_worker(Connection(handle), number, model, loaded)
            os.close(handle)
            control.send(process)


def _be_worker(
    connection: Connection, number: int, model: messages.WorkerModel, loaded: Translator | None
) -> None:
    """Work in a process that was just forked; never returns."""
    status = 1
    try:
        end_with_parent()

        def load() -> Translator:
            if loaded is not None:
                return loaded
            logs.configure(quiet=model.quiet or number > 0)  # one worker reports what it loads
            return Translator.load(model.path, **{**model.options, "device": f"cuda:{number}"})

        sys.setswitchinterval(SECONDS_OF_A_THREAD)
        work(connection, load, of_service=model.of_service)
        status = 0
    except BaseException:  # os._exit skips the interpreter's own traceback
        traceback.print_exc()
    finally:
        os._exit(status)


def main() -> None:
    """Serve the command at the other end of the connection that the argument names."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of workers too: the command ends them
    _serve(Connection(int(sys.argv[1])))
