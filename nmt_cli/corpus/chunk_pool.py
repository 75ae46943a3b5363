"""Works on chunks of a corpus in several processes, in order and in bounded memory."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from typing import Any, Protocol, TypeVar

from nmt_cli.corpus.text.parallel_text import PAIRS_IN_CHUNK
from nmt_cli.messages.errors import UserError

CHUNKS_IN_FLIGHT = 3  # for each worker: one in its queue, one being worked on, one done

Item = TypeVar("Item")
Item_contra = TypeVar("Item_contra", contravariant=True)
Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)


class Job(Protocol[Item_contra, Result_co]):
    """What each process does; it is sent to the process once, and starts there."""

    def start(self) -> Callable[[Item_contra], Result_co]:
        """Return the function that works on one item."""
        ...


def useful_workers(asked_for: int | None, num_pairs: int, worth_a_worker: int) -> int:
    """Return how many processes to use: those asked for, or as many as save time.

    Working on ``worth_a_worker`` pairs takes about as long as starting a process.
    """
    if asked_for is not None:
        return max(1, min(asked_for, -(-num_pairs // PAIRS_IN_CHUNK)))
    return min(len(os.sched_getaffinity(0)), 1 + num_pairs // worth_a_worker)


def in_order(
    items: Iterable[Item], job: Job[Item, Result], workers: int, doing: str = "reading"
) -> Iterator[tuple[Item, Result]]:
    """Yield each item with the result of ``job``; ``workers`` does not change the results.

    With one worker, this process does the work. Raises UserError if a process dies; its message
    has what the processes were ``doing``.
    """
    if workers == 1:
        work = job.start()
        for item in items:
            yield item, work(item)
        return
    # A forked process would inherit locks that threads of numpy and sentencepiece hold.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, initializer=_start_worker, initargs=(job,))
    waiting: deque[tuple[Item, Future[Result]]] = deque()
    try:
        for item in items:
            waiting.append((item, pool.submit(_work_in_worker, item)))
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
    finally:
        pool.shutdown(cancel_futures=True)


class _Worker:
    """What a process keeps between chunks."""

    work: Callable[[Any], Any]


def _start_worker(job: Job[Any, Any]) -> None:
    for number in (signal.SIGINT, signal.SIGHUP):  # they reach all; the parent ends the pool
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _Worker.work = job.start()


def _end_with_parent() -> None:
    """End this process when the parent is killed; nothing else would end it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _work_in_worker(item: Any) -> Any:
    return _Worker.work(item)
