"""Many clients of a service at a time, in one thread."""

import asyncio
import json
from collections.abc import Iterable, Iterator
from typing import Any


class Client:
    """A connection that is kept for one request after the other."""

    def __init__(self, host: str, port: int) -> None:
        self._place = (host, port)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, record: Any) -> tuple[int, Any]:
        """Return the status and the JSON of an answer."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._place)
        reader, writer = self._streams
        body = json.dumps(record).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: here\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        length = next(int(line.split(":")[1]) for line in lines if line.startswith("content-len"))
        return int(lines[0].split()[1]), json.loads(await reader.readexactly(length))

    async def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            await self._streams[1].wait_closed()


async def translate_all(
    place: tuple[str, int], num_clients: int, texts: Iterable[str], **asked: Any
) -> list[tuple[str, Any, float]]:
    """Return each text with its answer and the seconds it took; clients take the next in turn."""
    found: list[tuple[str, Any, float]] = []
    rest = iter(texts)

    async def ask(texts: Iterator[str]) -> None:
        client, loop = Client(*place), asyncio.get_running_loop()
        for text in texts:
            started = loop.time()
            status, answer = await client.post("/v1/translate", {"text": text, **asked})
            assert status == 200, answer
            found.append((text, answer["translations"][0], loop.time() - started))
        await client.close()

    await asyncio.gather(*(ask(rest) for _ in range(num_clients)))
    return found
