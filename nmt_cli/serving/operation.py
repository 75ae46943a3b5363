"""Whether the service is ready, and its figures."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily as Counted
from prometheus_client.core import GaugeMetricFamily as Gauge
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nmt_cli.hardware.memory import resident_bytes
from nmt_cli.serving.service import Endpoint, Service
from nmt_cli.translating.interface.record_keys import COUNT, Key

Labels = tuple[str, ...]  # their values
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)  # of the histogram
# Of each model, the fields of ``WorkerFigures`` that are numbers.
OF_MODELS: list[tuple[type[Counted | Gauge], str, str]] = [
    (Counted, "lines", "Lines translated."),
    (Counted, "pieces", "Pieces of the translations."),
    (Counted, "lines_with_invisible", "Lines from which invisible characters were left out."),
    (
        Counted,
        "lines_of_unseen",
        "Lines with a sentence that was copied, because the model never saw such letters.",
    ),
    (Counted, "worker_deaths", "Workers that died."),
    (Gauge, "waiting_lines", "Lines that no worker has."),
    (Gauge, "worker_lines", "Lines that workers have."),
    (Gauge, "silent_workers", "Workers that have lines and do not answer."),
]


class ServiceFigures(Collector):
    """Counts of requests, and what is read from the service when somebody asks."""

    def __init__(self, service: Service) -> None:
        self._service, self.registry = service, CollectorRegistry()
        self._requests = Counter(
            "nmt_cli_requests",
            "Answers; the status is 499 if the client went away.",
            ["path", "status"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "nmt_cli_request_seconds",
            "From the head of a request to its answer.",
            ["path"],
            registry=self.registry,
            buckets=SECONDS,
        )
        self.registry.register(self)

    def count(self, path: str, status: int, seconds: float) -> None:
        """Count an answer."""
        self._requests.labels(path, status).inc()
        self._seconds.labels(path).observe(seconds)

    def collect(self) -> Iterable[Metric]:
        """Yield the figures of the service and of what translates with each model."""
        service, of_models = self._service, self._service.figures_of_models()
        is_ready = float(service.health == "ready")
        yield _family(Gauge, "ready", "1 if requests are translated.", {(): is_ready})
        what = "Characters of the texts to translate."
        yield _family(Counted, "characters", what, {(): service.num_characters})
        for kind, name, meaning in OF_MODELS:
            values: dict[Labels, float] = {
                (model,): getattr(figures, name) for model, figures in of_models.items()
            }
            yield _family(kind, name, meaning, values, "model")
        busy, resident = dict[Labels, float](), dict[Labels, float]()
        resident["", "http"] = resident_bytes(os.getpid())
        resident["", "readers"] = sum(map(resident_bytes, service.readers.processes))
        for model, figures in of_models.items():
            for number, seconds in figures.busy_seconds.items():
                busy[model, str(number)] = seconds
            for number, process in figures.processes.items():
                resident[model, str(number)] = resident_bytes(process)
        what = "Time in which it had lines; the rate is the busy share."
        yield _family(Counted, "worker_busy_seconds", what, busy, "model", "worker")
        what = "Resident memory; workers share that of the model."
        yield _family(Gauge, "resident_bytes", what, resident, "model", "worker")


def _family(
    kind: type[Counted | Gauge],
    name: str,
    meaning: str,
    values: Mapping[Labels, float],
    *labels: str,
) -> Metric:
    """Return a metric with ``values`` by those of its ``labels``."""
    family = kind(f"nmt_cli_{name}", meaning, labels=labels)
    for each, value in values.items():
        family.add_metric(each, value)
    return family


async def health(service: Service, _: Request) -> Response:
    """Return the state of the service; the status is 200 if it is ready, else 503.

    It is starting until the models are loaded, draining after SIGTERM, and stuck while no worker of
    a model answers. Those that have lines and answer nothing for `--max-seconds` are replaced.
    """
    state = service.health
    num_silent = sum(each.silent_workers for each in service.figures_of_models().values())
    silent = {"silent_workers": num_silent} if num_silent else {}
    return JSONResponse({"status": state, **silent}, 200 if state == "ready" else 503)


async def metrics(_: Service, http: Request) -> Response:
    """Return the figures in the text format of Prometheus."""
    figures: ServiceFigures = http.app.state.figures
    return Response(generate_latest(figures.registry), media_type=CONTENT_TYPE_LATEST)


STATE = {
    "status": Key(
        {"enum": ["starting", "ready", "stuck", "draining"]}, "the state", is_needed=True
    ),
    "silent_workers": Key(COUNT, "workers that do not answer, if there are any"),
}
PATHS = [
    Endpoint("GET", "/health", health, returns=STATE),
    Endpoint("GET", "/metrics", metrics, media_type="text/plain"),
]
