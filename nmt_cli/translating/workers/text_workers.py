"""Several processes that translate one stream of lines, in order and in bounded memory.

The lines are read in windows, ahead of the searches, so that no worker is without lines before the
text ends. Workers get single lines, so each keeps its search full until then, and all end together.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from nmt_cli.translating.request import Request
from nmt_cli.translating.translation import Translation, in_order
from nmt_cli.translating.workers.batch import Batch
from nmt_cli.translating.workers.dispatcher import Dispatcher
from nmt_cli.translating.workers.starter import Starter
from nmt_cli.translating.workers.worker_process import LINES_OF_A_TEXT

# Finding one line among 192 takes 8 deaths in a row, and it dies 3 times.
MOST_DEATHS_IN_A_ROW = 50

Result = TypeVar("Result")


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
        self._done(self._opened())

    def close(self) -> None:
        """Kill the workers."""
        self._done(self._closed())
        self._loop.close()

    def translate_windows(
        self, windows: Iterator[Sequence[Request]]
    ) -> Iterator[list[Translation]]:
        """Yield the translations of each window, in order.

        ``windows`` is read in threads; its error is raised after the windows before. Raises
        LinesFailedError, with the translations of the lines before, for a bug, and UserError if
        workers die again and again.
        """
        text = _Text(self._dispatcher, windows, most_windows=3 + self._num_workers // 2)
        while (batch := self._done(text.next_finished())) is not None:
            yield in_order(answer for answer in batch.answers if answer is not None)

    async def _made(self, starter: Starter) -> Dispatcher:
        return Dispatcher(
            starter,
            self._num_workers,
            most_lines=LINES_OF_A_TEXT,
            takes_turns=False,
            most_deaths_in_a_row=MOST_DEATHS_IN_A_ROW,
        )

    async def _opened(self) -> None:
        await self._dispatcher.opened()

    async def _closed(self) -> None:
        self._dispatcher.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _done(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._loop.run_until_complete(work)


class _Text:
    """Windows of lines; up to ``most_windows`` of them are read and not finished."""

    def __init__(
        self, dispatcher: Dispatcher, windows: Iterator[Sequence[Request]], most_windows: int
    ) -> None:
        self._dispatcher, self._windows, self._most_windows = dispatcher, windows, most_windows
        self._batches: deque[Batch] = deque()  # the windows that were read, in order
        self._reading: asyncio.Future[Sequence[Request] | None] | None = None

    async def next_finished(self) -> Batch | None:
        """Return the next window when it is translated; None at the end.

        Raises the error of reading after the windows before it.
        """
        broken = self._dispatcher.broken
        while True:
            self._read_ahead()
            if self._batches:
                if self._batches[0].done.done():
                    return self._batches.popleft()
            elif self._reading is not None and self._reading.done():
                self._reading.result()  # raises an error of reading
                return None
            waited_for: list[asyncio.Future[Any]] = [
                broken,
                *(batch.done for batch in islice(self._batches, 1)),
            ]
            if self._reading is not None and not self._reading.done():
                waited_for.append(self._reading)
            await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
            if broken.done():
                broken.result()

    def _read_ahead(self) -> None:
        """Submit the window that was read, and begin to read the next one if there is room."""
        while self._reading is None or self._reading.done():
            if self._reading is not None:
                if self._reading.exception() is not None:
                    return
                window = self._reading.result()
                if window is None:
                    return  # the end
                self._batches.append(Batch(window))
                self._dispatcher.submit(self._batches[-1])
                self._reading = None
            if len(self._batches) >= self._most_windows:
                return
            self._reading = _in_a_thread(partial(next, self._windows, None))


def _in_a_thread(call: Callable[[], Result]) -> asyncio.Future[Result]:
    """Return the future of what ``call`` returns in a thread that does not keep the process alive.

    The call may wait for input for ever, and those in an executor are waited for at the end.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()

    def settle(done: concurrent.futures.Future[Result]) -> None:
        if not future.done():
            error = done.exception()
            future.set_result(done.result()) if error is None else future.set_exception(error)

    def run() -> None:
        done = concurrent.futures.Future[Result]()
        try:
            done.set_result(call())
        except BaseException as error:
            done.set_exception(error)
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(settle, done)

    threading.Thread(target=run, daemon=True).start()
    return future
