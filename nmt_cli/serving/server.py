"""Runs the service: starts the workers of each model, listens, and ends after a signal."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from typing import NamedTuple

import uvicorn

from nmt_cli.messages import logs
from nmt_cli.serving.app import app_of
from nmt_cli.serving.models import Models
from nmt_cli.serving.requests import Limits, Service
from nmt_cli.serving.workers import ModelWorkers
from nmt_cli.translating.workers.pool import WorkerStarter


class Address(NamedTuple):
    """Where the service listens; port 0 is any free one."""

    host: str
    port: int


async def _opened(workers: Iterable[ModelWorkers]) -> None:
    await asyncio.gather(*(each.open() for each in workers))


class _Server(uvicorn.Server):
    """A server that leaves signals to the service."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(
    address: Address,
    models: Models,
    starters: Mapping[str, WorkerStarter],
    num_workers: int,
    limits: Limits,
) -> None:
    """Serve until SIGTERM or SIGINT; then finish what was accepted.

    ``starters`` start the workers of each model. Raises UserError if they cannot be started.
    """
    async with AsyncExitStack() as stack:
        workers = {}
        for name, starter in starters.items():
            workers[name] = ModelWorkers(starter, num_workers)
            stack.push_async_callback(workers[name].close)
        service = Service(models, workers, limits)
        config = uvicorn.Config(
            app_of(service),
            host=address.host,
            port=address.port,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
        )
        server = _Server(config)

        def end() -> None:
            service.state, server.should_exit = "draining", True

        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, end)
        listening = asyncio.create_task(server.serve())
        opening = asyncio.create_task(_opened(workers.values()))
        await asyncio.wait({listening, opening}, return_when=asyncio.FIRST_COMPLETED)
        if opening.done():
            try:
                await opening
            except BaseException:
                server.should_exit = True
                await listening
                raise
            if service.state == "starting":
                service.state = "ready"
                port = server.servers[0].sockets[0].getsockname()[1]
                logs.info(f"Serving on http://{address.host}:{port}")
        await listening
