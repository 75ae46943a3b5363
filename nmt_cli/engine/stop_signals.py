"""SIGTERM, SIGINT and SIGHUP ask training to save and leave."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopRequest:
    """Whether somebody asked to stop; polled between batches."""

    def __init__(self) -> None:
        self.signal_name: str | None = None

    def __bool__(self) -> bool:
        return self.signal_name is not None

    def handle(self, number: int, _: FrameType | None) -> None:
        """Note the signal; a second SIGINT ends at once."""
        if self.signal_name is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal_name = signal.Signals(number).name


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Yield the request that a signal will set while the block runs."""
    request = StopRequest()
    previous = {
        number: signal.signal(number, request.handle)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    }
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
