"""The signals that ask a training to save and leave, and who handles them for a while."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


@contextmanager
def handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Let ``handler`` have the stopping signals while the block runs, but for those ignored."""
    previous = {
        number: signal.signal(number, handler)
        for number in STOPPING
        if signal.getsignal(number) is not signal.SIG_IGN  # such as by nohup
    }
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)
