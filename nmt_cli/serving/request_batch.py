"""The lines of a request, and what translates them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from nmt_cli.messages import logs
from nmt_cli.serving.requests import REQUEST_ID
from nmt_cli.translating.request import Request
from nmt_cli.translating.translation import Translation
from nmt_cli.translating.workers.batch import Batch, Line
from nmt_cli.translating.workers.dispatcher import WorkerFigures
from nmt_cli.translating.workers.messages import AttentionOf, Bug

BUG = "it met a bug in nmt-cli; the log of the server has its traceback"


class RequestBatch(Batch):
    """The lines of the request that is being answered, and their translations so far."""

    def __init__(self, requests: Sequence[Request | AttentionOf]) -> None:
        super().__init__(requests, f"request {REQUEST_ID.get()}")

    def answer(self, place: int, answer: Translation | Bug) -> None:
        """Note the translation of a line; a bug is logged, and the line gets an error."""
        if isinstance(answer, Bug):
            line = Line(self, place)
            logs.warning(f"{line} met a bug in a worker process:\n{answer.traceback}")
            answer = Translation(error=BUG)
        super().answer(place, answer)

    def translations(self) -> list[Translation]:
        """Return the translation of each line, in order; the batch is done."""
        return [each for each in self.answers if isinstance(each, Translation)]


class Translating(Protocol):
    """What translates the lines of requests with one model; ``Dispatcher`` does."""

    @property
    def num_waiting(self) -> int:
        """The lines that no worker has."""
        ...

    def submit(self, batch: RequestBatch) -> None:
        """Let lines join the searches; ``done`` of the batch is set when all are answered."""
        ...

    def withdraw(self, batch: RequestBatch) -> None:
        """Translate no more of the batch."""
        ...

    def figures(self) -> WorkerFigures:
        """Return what was done, and what is to be done."""
        ...
