"""A thread that works beside the steps of a search, which the library computes without Python."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any

Work = Callable[[], Any]
Take = Callable[[Any], None]  # gets what the work returned, or the error that it raised


class BackgroundThread:
    """Does work in a thread of its own, the smallest first; one thread gives work and takes it.

    The thread ends when there is nothing to do, so that it keeps nothing in memory.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards what follows
        self._waiting = list[tuple[int, int, Work, Take]]()  # a heap, by the size and the order
        self._numbers = count()
        self._thread: threading.Thread | None = None
        self._done = deque[tuple[Take, Any]]()
        self.num_inside = 0  # given and not taken; of the thread that gives work

    def do(self, size: int, work: Work, take: Take) -> None:
        """Begin ``work`` when nothing smaller waits; ``take`` gets the result in ``take_done``."""
        self.num_inside += 1
        with self._changed:
            heappush(self._waiting, (size, next(self._numbers), work, take))
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="nmt-cli background", daemon=True
                )
                self._thread.start()

    def take_done(self, seconds: float = 0.0) -> None:
        """Give the results that are there to who takes them; wait for one at most ``seconds``."""
        if seconds:
            with self._changed:
                self._changed.wait_for(lambda: self._done, seconds)
        while self._done:
            take, found = self._done.popleft()
            self.num_inside -= 1
            take(found)

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._thread = None
                    return
                *_, work, take = heappop(self._waiting)
            try:
                found = work()
            except BaseException as error:
                found = error
            with self._changed:
                self._done.append((take, found))
                self._changed.notify_all()
            del work, take, found
