"""Requests to save and leave: a signal, or the end of ``--max-time``."""

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from nmt_cli.durations import duration_text
from nmt_cli.signals import STOPPING, handled

MAX_TIME = "--max-time"
REASONS = (*(number.name for number in STOPPING), MAX_TIME)
SPARE = 1.5  # times the longest step and the longest save are left before the deadline


class StopRequest:
    """Whether training was asked to stop; it is true once there is a request.

    ``deadline`` is the monotonic time by which training should be saved, and ``max_time`` the
    seconds that the user gave, for messages. Each rank has its own request. The ranks exchange the
    ``flags`` of theirs, and all act on ``agreed``, which ``agree`` sets from the sums.
    """

    def __init__(
        self,
        deadline: float | None = None,
        *,
        max_time: float | None = None,
        second_interrupt_ends: bool = True,
    ) -> None:
        self.reason: str | None = None
        self.agreed: str | None = None
        self._deadline, self._max_time = deadline, max_time
        self._second_interrupt_ends = second_interrupt_ends
        self._needed = {"step": 0.0, "save": 0.0}  # seconds, the longest so far

    def __bool__(self) -> bool:
        if self.reason is None and self._deadline is not None:
            needed = SPARE * sum(self._needed.values())
            if time.monotonic() + needed >= self._deadline:
                self.reason = MAX_TIME
        return self.reason is not None

    @property
    def why(self) -> str:
        """The agreed reason to stop, as text for a message."""
        if self.agreed == MAX_TIME and self._max_time is not None:
            return f"{MAX_TIME} {duration_text(self._max_time)}"
        return self.agreed or "a request"

    def note_seconds(self, what: str, seconds: float) -> None:
        """Note the seconds of a "step" or a "save", which must be left before the deadline."""
        self._needed[what] = max(self._needed[what], seconds)

    def flags(self) -> list[float]:
        """Return this rank's request as numbers, which are then summed over the ranks."""
        reason = self.reason if self else None
        return [float(reason == name) for name in REASONS]

    def agree(self, sums: Sequence[float]) -> None:
        """Set ``agreed`` from the flags summed over all ranks, the same on every rank."""
        self.agreed = next((reason for reason, n in zip(REASONS, sums, strict=True) if n), None)

    def handle(self, number: int, _: FrameType | None) -> None:
        """Note the signal; a second SIGINT ends a single process at once."""
        if self.reason is not None and number == signal.SIGINT and self._second_interrupt_ends:
            raise KeyboardInterrupt
        self.reason = signal.Signals(number).name


@contextmanager
def stop_requests(request: StopRequest) -> Iterator[StopRequest]:
    """Let signals set ``request`` while the block runs."""
    with handled(request.handle):
        yield request
