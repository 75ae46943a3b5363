"""Requests to save and leave: one of the signals for it, or the end of ``--max-time``."""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from nmt_cli.messages.figures import duration_text

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


@contextmanager
def handling_stop_signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
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


MAX_TIME = "--max-time"
REASONS = (*(number.name for number in STOPPING), MAX_TIME)
SPARE = 1.5  # times a save and a step, or a window of validation, are left before the deadline


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
        self.deadline, self._max_time = deadline, max_time
        self._second_interrupt_ends = second_interrupt_ends
        self._needed = dict[str, float]()  # seconds, the longest so far

    def __bool__(self) -> bool:
        if self.reason is None and not self._has_time_for("step", "window"):
            self.reason = MAX_TIME
        return self.reason is not None

    def has_time_to_validate(self) -> bool:
        """Return whether a validation will end in time, as far as an earlier one shows it."""
        return self.deadline is None or (
            "validation" in self._needed and self._has_time_for("validation")
        )

    def _has_time_for(self, *alternatives: str) -> bool:
        """Return whether the longest of the alternatives and a save end before the deadline."""
        if self.deadline is None:
            return True
        needed = self._needed.get("save", 0.0)
        needed += max(self._needed.get(what, 0.0) for what in alternatives)
        return time.monotonic() + SPARE * needed < self.deadline

    @property
    def why(self) -> str:
        """The agreed reason to stop, as text for a message."""
        if self.agreed == MAX_TIME and self._max_time is not None:
            return f"{MAX_TIME} {duration_text(self._max_time)}"
        return self.agreed or "a request"

    def note_seconds(self, what: str, seconds: float) -> None:
        """Note the seconds of a "step", "save", "validation", or "window" of its text."""
        self._needed[what] = max(self._needed.get(what, 0.0), seconds)

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
