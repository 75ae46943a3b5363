"""A running service with two models, in this process: its workers are translators here."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nmt_cli.serving.models import Models, glossaries_of, models_of
from nmt_cli.serving.pivots import pivots_of
from nmt_cli.serving.requests import Limits
from nmt_cli.serving.served import Options
from nmt_cli.serving.server import Server, app_of, listening_socket
from nmt_cli.serving.service import Service
from nmt_cli.translating.interface.translation import Translation
from nmt_cli.translating.translator import Translator
from nmt_cli.translating.workers.dispatcher import WorkerFigures
from nmt_cli.translating.workers.messages import AttentionOf
from nmt_cli.translating.workers.worker_main import attention_page
from nmt_cli.translating.workers.worker_process import Batch

REVERSING = Path(__file__).parents[1] / "formats/format_2/sentencepiece/run/average"
LIMITS = Limits(1 << 20, characters=100_000, lines=10_000, waiting_lines=20_000, seconds=60.0)
ARGUMENTS = [f"{REVERSING}=en:de", f"{REVERSING}=de:fr"]


class TranslatorHere:
    """Translates the lines of requests by a translator of this process."""

    def __init__(self, translator: Translator) -> None:
        self.translator, self.num_waiting = translator, 0
        self.drawing = ThreadPoolExecutor(1)
        self.withdrawn: list[Batch] = []

    def submit(self, batch):
        loop = asyncio.get_running_loop()

        def answered(place, future):
            loop.call_soon_threadsafe(batch.answer, place, future.result())

        for place, request in enumerate(batch.requests):
            if isinstance(request, AttentionOf):
                future = self.drawing.submit(attention_page, self.translator, request)
            else:
                future = self.translator.submit(request)
            future.add_done_callback(partial(answered, place))

    def withdraw(self, batch):
        self.withdrawn.append(batch)

    def figures(self):
        return WorkerFigures()


class Silent:
    """Takes the lines of requests, and answers those of a batch when ``answer`` is called."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.withdrawn: list[Batch] = []
        self.num_waiting = 0

    def submit(self, batch):
        self.batches.append(batch)

    def withdraw(self, batch):
        batch.done.cancel()
        self.withdrawn.append(batch)

    def figures(self):
        return WorkerFigures(waiting_lines=self.num_waiting)


class Instant(Silent):
    """Answers at once that a line is not its text."""

    def submit(self, batch):
        super().submit(batch)
        for place, request in enumerate(batch.requests):
            batch.answer(place, Translation(f"not {request.text}", -1.0))


class Naming(Silent):
    """Answers at once which model translates a line."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def submit(self, batch):
        super().submit(batch)
        for place, request in enumerate(batch.requests):
            batch.answer(place, Translation(f"{request.text} by {self.name}", -1.0))


class Running:
    """A service that listens; ``url`` is its address."""

    def __init__(self, service: Service, url: str, here: Any) -> None:
        self.service, self.url, self.here = service, url, here

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port."""
        host, port = self.url.removeprefix("http://").split(":")
        return host, int(port)


@contextmanager
def running(
    arguments: Sequence[str] = ARGUMENTS,
    limits: Limits = LIMITS,
    here: Any = None,  # what translates, or what returns it for each model
    has_pivots: bool = False,
    **service_options: Any,
) -> Iterator[Running]:
    found = models_of(arguments)
    models = Models(found, pivots_of(found) if has_pivots else ())
    if here is None:
        options: Any = {"device": "cpu", "precision": "fp32", "token_scores": True}
        here = TranslatorHere(Translator.load(REVERSING, **options))
    each = here if callable(here) else lambda _: here
    workers = {model.name: each(model) for model in models.models}
    service = Service(models, workers, Options(limits, **service_options))
    service.state = "ready"
    listener = listening_socket("127.0.0.1", 0)
    server = Server(app_of(service), limits.seconds)

    async def serve() -> None:
        watching = asyncio.create_task(server.close_idle_connections())
        await server.serve([listener])
        watching.cancel()
        await service.readers.close()

    thread = threading.Thread(target=asyncio.run, args=[serve()], daemon=True)
    thread.start()
    yield Running(service, f"http://127.0.0.1:{listener.getsockname()[1]}", here)
    server.should_exit = True
    thread.join()
    listener.close()
    if isinstance(here, TranslatorHere):
        here.translator.close()


# Not for the session: the clocks that other tests replace would stop its event loop.
@pytest.fixture(scope="module")
def running_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    path = tmp_path_factory.mktemp("glossaries") / "animals.tsv"
    path.write_text("ant\tlark\nbee\tfox ||| hen\n")
    with running(glossaries=glossaries_of([str(path)], models_of(ARGUMENTS))) as found:
        yield found
