"""Lines that are translated together in this process."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from nmt_cli.messages import logs
from nmt_cli.messages.errors import LinesFailedError
from nmt_cli.translating.request import Request
from nmt_cli.translating.translation import Translation


class LinesOfAWindow:
    """The lines, as ``LineSource`` documents them, and their translations."""

    is_text = True

    def __init__(self, requests: Iterable[Request]) -> None:
        self._requests = list(requests)
        self._waiting = iter(enumerate(self._requests))
        self._answers: dict[int, Translation | BaseException] = {}
        self._end = len(self._requests)  # behind the first line that met a bug

    def take(self) -> tuple[int, Request] | None:
        """Return the next line and its place; None at the end, or behind one that met a bug."""
        place, request = next(self._waiting, (len(self._requests), None))
        return (place, request) if request is not None and place < self._end else None

    def take_withdrawn(self, inside: Collection[int]) -> Collection[int]:
        """Return the lines behind one that met a bug, because the error ends before them."""
        has_bug = self._end < len(self._requests)
        return [place for place in inside if place >= self._end] if has_bug else ()

    def answer(self, line: int, answer: Translation | BaseException) -> None:
        """Take the translation of a line, or the bug that it met."""
        self._answers[line] = answer
        if isinstance(answer, BaseException):
            self._end = min(self._end, line + 1)

    def report(self, line: int, what: str) -> None:
        """Log that a line takes long."""
        logs.info(f"line {self._requests[line].line:,} {what}")

    def finished(self) -> list[Translation]:
        """Return the translation of each line, in order.

        Raises LinesFailedError for a bug; it holds the translations of the lines before.
        """
        finished: list[Translation] = []
        for place in range(self._end):
            answer = self._answers.pop(place)
            if isinstance(answer, BaseException):
                raise LinesFailedError(place, place, finished) from answer
            finished.append(answer)
        return finished
