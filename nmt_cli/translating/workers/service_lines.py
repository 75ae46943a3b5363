"""The lines that a worker of a service translates."""

from __future__ import annotations

import select
import traceback
from collections.abc import Callable, Collection
from multiprocessing.connection import Connection

from nmt_cli.translating.request import Request, numbered
from nmt_cli.translating.translation import Translation
from nmt_cli.translating.workers.messages import AttentionOf, Bug


class ServiceLines:
    """The lines of a worker for ``LineSearch``, and pages, which are drawn while none is searched.

    They come in messages, which are lists of numbers and requests: a number with None withdraws
    what came under this number. The answers are lists of numbers and translations, or bugs. Both
    are exchanged in ``wait`` and after each step of the search, so that one thread is enough.
    """

    def __init__(self, connection: Connection, draw: Callable[[AttentionOf], Translation]) -> None:
        """``draw`` returns a page."""
        self.have_ended = False  # the other end was closed
        self._connection, self._draw = connection, draw
        # ``Connection.poll`` makes such an object each time, which a step would feel.
        self._arrivals = select.poll()
        self._arrivals.register(connection.fileno(), select.POLLIN)
        self._waiting: dict[int, Request | AttentionOf] = {}  # in the order in which they came
        self._withdrawn: set[int] = set()  # since the last step
        self._answers: list[tuple[int, Translation | Bug]] = []  # that were not sent yet

    def wait(self, seconds: float | None = None) -> bool:
        """Send the answers, and wait for lines; return whether there is something to do.

        Waits at most ``seconds``; None: for ever. No line may be in the search.
        """
        self._exchange(seconds)
        self._withdrawn.clear()  # what is here no longer
        return bool(self._waiting) or self.have_ended

    def take(self) -> tuple[int, Request] | None:
        """Return the next line; None if there is none, or if a page comes before it."""
        number, request = next(iter(self._waiting.items()), (0, None))
        if not isinstance(request, Request):
            return None
        del self._waiting[number]
        return number, next(numbered([request], first=number))

    def withdrawn(self, inside: Collection[int]) -> Collection[int]:
        """Return the lines ``inside`` that nobody waits for any more."""
        self._exchange(0)
        if self.have_ended:
            return list(inside)
        withdrawn, self._withdrawn = self._withdrawn, set()
        return withdrawn

    def answer(self, line: int, answer: Translation | BaseException) -> None:
        """Send the translation of a line after this step."""
        if isinstance(answer, BaseException):
            report = "".join(traceback.format_exception(answer))
            self._answers.append((line, Bug(0, 0, [], report)))
        else:
            self._answers.append((line, answer))

    def draw_page(self) -> None:
        """Draw a page if one is next; no line may be in the search."""
        number, request = next(iter(self._waiting.items()), (0, None))
        if not isinstance(request, AttentionOf):
            return
        del self._waiting[number]
        try:
            self.answer(number, self._draw(request))
        except Exception as error:
            self.answer(number, error)

    def _exchange(self, seconds: float | None) -> None:
        """Send the answers and receive what has come; wait for that if no line waits here."""
        try:
            if self._answers:
                self._connection.send(self._answers)
                self._answers = []
            milliseconds = None if seconds is None else 1_000 * seconds
            while self._arrivals.poll(0 if self._waiting else milliseconds):
                for number, request in self._connection.recv():
                    if request is not None:
                        self._waiting[number] = request
                    elif self._waiting.pop(number, None) is None:
                        self._withdrawn.add(number)
                milliseconds = 0
        except (EOFError, OSError):
            self._waiting.clear()
            self.have_ended = True
