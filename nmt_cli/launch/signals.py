"""The signals that ask a training to save and end, and a temporary handler for them."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


@contextmanager
def handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle the stopping signals by ``handler`` while the block runs, except ignored ones."""
    previous = {
        number: signal.signal(number, handler)
        for number in STOPPING
        if signal.getsignal(number) is not signal.SIG_IGN  # ignored, for example, by nohup
    }
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)
