"""Works on chunks of a corpus in several processes, in order and in bounded memory."""

import multiprocessing
import os
import pickle
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from nmt_cli.corpus.text.parallel_text import PAIRS_IN_CHUNK
from nmt_cli.hardware.cpu import usable_cores
from nmt_cli.launch.python_process import end_with_parent
from nmt_cli.messages.errors import UserError

CHUNKS_IN_FLIGHT = 3  # for each worker: one in its queue, one being worked on, one done

Item = TypeVar("Item")
Result = TypeVar("Result")


class ChunkPool:
    """Processes that do one kind of work after another; they start when the first needs them.

    Use it in a ``with`` block, and from one thread. Work is sent to the processes as files in
    ``folder``. ``asked_for`` is how many processes there shall be; None for as many as save time.
    """

    def __init__(self, folder: Path, asked_for: int | None = 1) -> None:
        self._folder, self._asked_for = folder, asked_for
        self._pool: ProcessPoolExecutor | None = None
        self._size = self._num_sent = 0

    def __enter__(self) -> "ChunkPool":
        return self

    def __exit__(self, *_: object) -> None:
        self.end_processes()

    def end_processes(self) -> None:
        """End the processes, which frees their memory; the next work starts new ones."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def useful_workers(self, num_pairs: int, worth_a_worker: int) -> int:
        """Return how many processes to use: those asked for, or as many as save time.

        Working on ``worth_a_worker`` pairs takes about as long as starting a process.
        """
        if self._asked_for is not None:
            return max(1, min(self._asked_for, -(-num_pairs // PAIRS_IN_CHUNK)))
        return min(usable_cores(), 1 + num_pairs // worth_a_worker)

    def in_order(
        self,
        items: Iterable[Item],
        work: Callable[[Item], Result],
        workers: int,
        doing: str = "reading",
    ) -> Iterator[tuple[Item, Result]]:
        """Yield each item with the result of ``work``; ``workers`` does not change the results.

        With one worker, this process does the work. Otherwise ``work`` is pickled once, with what
        it needs. No other work may begin before the end of this one. Raises UserError if a process
        dies; its message has what the processes were ``doing``.
        """
        if workers == 1:
            for item in items:
                yield item, work(item)
            return
        pool, path = self._started(workers), self._sent(work)
        waiting: deque[tuple[Item, Future[Result]]] = deque()
        try:
            for item in items:
                waiting.append((item, pool.submit(_work_in_worker, path, item)))
                if len(waiting) >= CHUNKS_IN_FLIGHT * workers:
                    done, future = waiting.popleft()
                    yield done, future.result()
            while waiting:
                done, future = waiting.popleft()
                yield done, future.result()
        except BrokenProcessPool:
            raise UserError(
                f"one of {workers} {doing} processes died, perhaps because memory was full; "
                "run again with fewer --workers."
            ) from None

    def _started(self, workers: int) -> ProcessPoolExecutor:
        if self._pool is None or workers > self._size:
            self.end_processes()
            # A forked process would inherit locks that threads of numpy and sentencepiece hold.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(workers, context, start_worker, (os.getpid(),))
            self._size = workers
        return self._pool

    def _sent(self, work: Callable[[Any], Any]) -> Path:
        self._num_sent += 1
        path = self._folder / f"work-{self._num_sent}"
        path.write_bytes(pickle.dumps(work))
        return path


def start_worker(parent: int) -> None:
    """Let this process end with its ``parent``, and ignore the signals of terminals."""
    end_with_parent(parent=parent)  # nothing else would end it when the parent is killed
    for number in (signal.SIGINT, signal.SIGHUP):  # they reach all; the parent ends the pool
        signal.signal(number, signal.SIG_IGN)


def _work_in_worker(path: Path, item: Any) -> Any:
    return _received(path)(item)


@lru_cache(maxsize=1)
def _received(path: Path) -> Callable[[Any], Any]:
    work: Callable[[Any], Any] = pickle.loads(path.read_bytes())
    return work
