"""The lines of a request."""

from __future__ import annotations

from collections.abc import Sequence

from nmt_cli.messages import logs
from nmt_cli.serving.requests import REQUEST_ID
from nmt_cli.translating.request import Request
from nmt_cli.translating.translation import Translation
from nmt_cli.translating.workers.batch import Batch, BatchLine
from nmt_cli.translating.workers.messages import AttentionOf, WorkerBugError

BUG = "it met a bug in nmt-cli; the log of the server has its traceback"


class RequestBatch(Batch):
    """The lines of the request that is being answered, and their translations so far."""

    def __init__(self, requests: Sequence[Request | AttentionOf]) -> None:
        super().__init__(requests, f"request {REQUEST_ID.get()}")

    def answer(self, place: int, answer: Translation | WorkerBugError) -> None:
        """Note the translation of a line; a bug is logged, and the line gets an error."""
        if isinstance(answer, WorkerBugError):
            line = BatchLine(self, place)
            logs.warning(f"{line} met a bug {answer}")
            answer = Translation(error=BUG)
        super().answer(place, answer)

    def translations(self) -> list[Translation]:
        """Return the translation of each line, in order; the batch is done."""
        return [each for each in self.answers if isinstance(each, Translation)]
