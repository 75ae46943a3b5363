"""Several processes that translate one stream of lines, in order and in bounded memory.

The lines are read in windows, ahead of the searches, so that no worker is without lines before the
text ends. Workers get single lines, so each keeps its search full until then, and all end together.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Coroutine, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.interface.translation import Translation, in_order
from nmt_cli.translating.workers.dispatcher import Dispatcher
from nmt_cli.translating.workers.starter import Starter
from nmt_cli.translating.workers.worker_process import Batch

Result = TypeVar("Result")
Batches = asyncio.Queue[Batch | BaseException | None]


class TextWorkers:
    """Workers that share a text, from ``open`` to ``close``; not to be shared between threads."""

    def __init__(self, starter: Starter, num_workers: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._num_workers = num_workers
        self._dispatcher = self._done(self._made(starter))

    @property
    def chosen(self) -> dict[str, str]:
        """What the options of the workers' translators became."""
        return self._dispatcher.chosen

    def open(self) -> None:
        """Start the workers, and wait for the first one.

        Raises UserError if they cannot load the model.
        """
        self._done(self._dispatcher.opened())

    def close(self) -> None:
        """Kill the workers."""
        self._done(self._closed())
        self._loop.close()

    def translate_windows(
        self, windows: Iterator[Sequence[Request]]
    ) -> Iterator[list[Translation]]:
        """Yield the translations of each window, in order.

        ``windows`` is read in a thread; its error is raised after the windows before. Raises
        LinesFailedError, with the translations of the lines before, for a bug, and UserError if
        workers die again and again.
        """
        # Windows that are read and not finished, beside the one that waits to be read.
        has_room = threading.Semaphore(2 + self._num_workers // 2)
        # The windows that were read, in order, and then the error of reading, or None at the end.
        batches = Batches()
        # Reading may wait for input for ever, and must not keep the process alive.
        threading.Thread(target=self._read, args=(windows, batches, has_room), daemon=True).start()
        while (batch := self._done(self._first_of(batches.get()))) is not None:
            if isinstance(batch, BaseException):
                raise batch
            self._done(self._first_of(batch.done))
            has_room.release()
            yield in_order(answer for answer in batch.answers if answer is not None)

    async def _made(self, starter: Starter) -> Dispatcher:
        return Dispatcher(starter, self._num_workers, is_text=True)

    async def _closed(self) -> None:
        self._dispatcher.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _done(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._loop.run_until_complete(work)

    async def _first_of(self, work: Awaitable[Result]) -> Result:
        """Return the result of ``work``. Raises UserError when the workers die again and again."""
        done, broken = asyncio.ensure_future(work), self._dispatcher.broken
        await asyncio.sleep(0)  # what is there already comes before the error
        if not done.done():
            either: set[asyncio.Future[Any]] = {done, broken}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not done.done():
            broken.result()
        return done.result()

    def _read(
        self, windows: Iterator[Sequence[Request]], batches: Batches, has_room: threading.Semaphore
    ) -> None:
        end: BaseException | None = None
        with suppress(RuntimeError):  # the loop was closed meanwhile
            try:
                for window in windows:
                    self._loop.call_soon_threadsafe(self._submit, window, batches)
                    has_room.acquire()
            except BaseException as error:
                end = error
            self._loop.call_soon_threadsafe(batches.put_nowait, end)

    def _submit(self, window: Sequence[Request], batches: Batches) -> None:
        batch = Batch(window)
        self._dispatcher.submit(batch)
        batches.put_nowait(batch)
