"""The lines that a worker translates."""

from __future__ import annotations

import select
import traceback
from collections.abc import Callable, Collection, Mapping
from multiprocessing.connection import Connection

from nmt_cli.corpus.text.glossary import Glossary
from nmt_cli.translating.request import Request, numbered
from nmt_cli.translating.translation import Translation
from nmt_cli.translating.workers.messages import Answer, AttentionOf, Bug, Shared, SlowLine, TextOf


class WorkerLines:
    """The lines of a worker, and pages, which are drawn while no line is searched.

    A message is a list of numbers, each with a request, with what several lines share (``Shared``),
    or with the text of such a line (``TextOf``); None withdraws what came under the number. The
    answers are lists of numbers, each with a translation, a bug or a report of a slow line; None
    confirms that it is withdrawn. Messages and answers are exchanged in ``wait`` and after each
    step of the search, so that one thread is enough.
    """

    def __init__(
        self,
        connection: Connection,
        draw: Callable[[AttentionOf], Translation],
        *,
        is_text: bool = False,
    ) -> None:
        """``draw`` returns a page. ``is_text`` is as in ``LineSource``."""
        self.is_text = is_text
        self.is_closed = False  # the other end was closed
        self._connection, self._draw = connection, draw
        # ``Connection.poll`` makes such an object each time: 30 µs a step.
        self._arrivals = select.poll()
        self._arrivals.register(connection.fileno(), select.POLLIN)
        self._waiting: dict[int, Request | AttentionOf] = {}  # in the order in which they came
        self._shared: dict[int, Request] = {}
        self._withdrawn: set[int] = set()  # since the last step
        self._answers: list[tuple[int, Answer]] = []  # that were not sent yet

    def wait(self, seconds: float | None = None) -> bool:
        """Send the answers, and wait for a message; return False if ``seconds`` passed without one.

        None waits for ever. Does not wait if a line is left. No line may be in the search.
        """
        has_come = self._exchange(seconds)
        self._withdrawn.clear()  # these were answered before
        return has_come or bool(self._waiting)

    def take(self) -> tuple[int, Request] | None:
        """Return the next line; None if there is none, or if a page comes before it."""
        number, request = self._first()
        if not isinstance(request, Request):
            return None
        del self._waiting[number]
        return number, next(numbered([request], first=number))

    def take_withdrawn(self, inside: Collection[int]) -> Collection[int]:
        """Exchange messages; return the lines that were withdrawn, all if the end was closed."""
        self._exchange(0)
        if self.is_closed:
            return list(inside)
        withdrawn, self._withdrawn = self._withdrawn, set()
        return withdrawn

    def answer(self, line: int, answer: Translation | BaseException) -> None:
        """Send the translation of a line after this step."""
        if isinstance(answer, BaseException):
            report = "".join(traceback.format_exception(answer))
            self._answers.append((line, Bug(report)))
        else:
            self._answers.append((line, answer))

    def report(self, line: int, what: str) -> None:
        """Send what is to be logged of a line after this step."""
        self._answers.append((line, SlowLine(what)))

    def draw_page(self) -> None:
        """Draw a page if one is next; no line may be in the search."""
        number, request = self._first()
        if not isinstance(request, AttentionOf):
            return
        del self._waiting[number]
        try:
            self.answer(number, self._draw(request))
        except Exception as error:
            self.answer(number, error)

    def _first(self) -> tuple[int, Request | AttentionOf | None]:
        return next(iter(self._waiting.items()), (0, None))

    def _exchange(self, seconds: float | None) -> bool:
        """Send the answers and receive what has come; return whether anything has.

        Waits for that, at most ``seconds``, if no line is left.
        """
        has_come = False
        try:
            self._send_answers()
            milliseconds = None if seconds is None else 1_000 * seconds
            while self._arrivals.poll(0 if self._waiting or has_come else milliseconds):
                for number, item in self._connection.recv():
                    self._receive(number, item)
                has_come = True
            self._send_answers()
        except (EOFError, OSError):
            self._waiting.clear()
            has_come = self.is_closed = True
        return has_come

    def _receive(self, number: int, item: Request | AttentionOf | Shared | TextOf | None) -> None:
        if isinstance(item, Shared):
            self._shared[number] = _with_terms(item.request)
        elif isinstance(item, TextOf):
            self._waiting[number] = self._shared[item.shared]._replace(
                text=item.text, line=item.line
            )
        elif item is not None:
            self._waiting[number] = item
        else:
            known = self._waiting.pop(number, None) or self._shared.pop(number, None)
            if known is None:
                self._withdrawn.add(number)
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
