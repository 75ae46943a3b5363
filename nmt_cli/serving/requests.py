"""What every interface of the service does with a request: limits, reading, waiting for answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from starlette.requests import ClientDisconnect, Request

from nmt_cli.serving.models import Model, Models
from nmt_cli.serving.workers import Translating
from nmt_cli.translating.request import Request as Line
from nmt_cli.translating.translation import Translation

STATUS_CLIENT_GONE = 499  # nobody gets it; it is counted


class RefusedError(Exception):
    """A request that is not answered; ``status`` is that of HTTP."""

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.retry_after = status, message, retry_after

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the answer."""
        return {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}


class Limits(NamedTuple):
    """What requests may ask for."""

    body_bytes: int = 1 << 20
    characters: int = 100_000
    lines: int = 10_000
    waiting_lines: int = 20_000
    seconds: float = 300.0  # from the first byte of a request to its answer


class Service:
    """The models of the service and what translates with each, for all interfaces.

    ``state`` is "starting", "ready" or "draining".
    """

    def __init__(
        self, models: Models, translating: Mapping[str, Translating], limits: Limits
    ) -> None:
        """``translating`` has an entry for the name of each model."""
        self.models, self.limits, self.state = models, limits, "starting"
        self._translating = translating

    async def translate(
        self, http: Request, model: Model, lines: Sequence[Line]
    ) -> list[Translation]:
        """Return the translation of each line.

        Raises RefusedError if there are too many, or if they take too long, and ClientDisconnect
        if the client goes away: then they are withdrawn.
        """
        self._refuse_many(model, lines)
        workers = self._translating[model.name]
        batch = workers.submit(lines)
        gone = asyncio.ensure_future(_gone(http))
        first, seconds = asyncio.FIRST_COMPLETED, self.limits.seconds
        try:
            await asyncio.wait({batch.done, gone}, timeout=seconds, return_when=first)
            if not batch.done.done():
                if gone.done():
                    raise ClientDisconnect
                message = f"the translation took longer than {seconds:g} seconds"
                raise RefusedError(503, message, retry_after=1)
        finally:
            gone.cancel()
            if not batch.done.done():
                workers.withdraw(batch)
        return [translation for translation in batch.translations if translation is not None]

    def _refuse_many(self, model: Model, lines: Sequence[Line]) -> None:
        if self.state != "ready":
            raise RefusedError(503, f"the service is {self.state}", retry_after=1)
        if len(lines) > self.limits.lines:
            raise RefusedError(
                413, f"{len(lines):,} lines are more than {self.limits.lines:,} in a request"
            )
        num_characters = sum(len(line.text) for line in lines)
        if num_characters > self.limits.characters:
            raise RefusedError(
                413, f"{num_characters:,} characters are more than {self.limits.characters:,}"
            )
        num_waiting = self._translating[model.name].num_waiting
        if num_waiting and num_waiting + len(lines) > self.limits.waiting_lines:
            raise RefusedError(503, f"{num_waiting:,} lines wait already", retry_after=1)

    async def body(self, http: Request) -> bytes:
        """Return the body. Raises RefusedError if it is too large or comes too slowly."""
        try:
            return await asyncio.wait_for(self._read(http), self.limits.seconds)
        except asyncio.TimeoutError:  # another one than TimeoutError in Python 3.10
            raise RefusedError(408, "the body did not come in time") from None

    async def _read(self, http: Request) -> bytes:
        most, parts, size = self.limits.body_bytes, list[bytes](), 0
        async for part in http.stream():
            parts.append(part)
            size += len(part)
            if size > most:
                raise RefusedError(413, f"the body has more than {most:,} bytes")
        return b"".join(parts)

    async def record(self, http: Request) -> dict[str, Any]:
        """Return the JSON object in the body. Raises RefusedError if there is none."""
        try:
            record = json.loads(await self.body(http))
        except UnicodeDecodeError:
            raise RefusedError(400, "the body is not UTF-8") from None
        except (ValueError, RecursionError) as error:
            raise RefusedError(400, f"the body is not JSON: {error}") from None
        if not isinstance(record, dict):
            raise RefusedError(400, "the body is not a JSON object")
        return record


async def _gone(http: Request) -> None:
    """Wait until the client has gone away; the body must have been read."""
    while (await http.receive())["type"] != "http.disconnect":
        pass
