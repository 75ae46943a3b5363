"""Messages and progress for the user. They go to stderr, because stdout is for data."""

from __future__ import annotations

import logging
import math
import re
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nmt_cli.messages.terminal_bar import TerminalBar

SECONDS_BETWEEN_PLAIN_REPORTS = 10.0
CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

_logger = logging.getLogger("nmt_cli")


class _StderrHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        # If stderr is on a full disk or a closed pipe, the work itself must go on.
        with suppress(OSError):
            if "tqdm" in sys.modules:  # then there may be a bar, which it writes above
                from tqdm import tqdm

                tqdm.write(self.format(record), file=sys.stderr)
            else:
                sys.stderr.write(f"{self.format(record)}\n")


def configure(*, quiet: bool) -> None:
    """Send messages to stderr; ``quiet`` leaves warnings only."""
    if not _logger.handlers:
        _logger.addHandler(_StderrHandler())
        _logger.propagate = False
    _logger.setLevel(logging.WARNING if quiet else logging.INFO)


def are_quiet() -> bool:
    """Return whether only warnings are logged."""
    return not _logger.isEnabledFor(logging.INFO)


def flags_of_child() -> list[str]:
    """Return the words that make a command in another process as quiet as this one."""
    return ["--quiet"] if are_quiet() else []


def printable(text: str) -> str:
    """Return ``text`` with control characters escaped, so that input cannot control a terminal."""
    return CONTROL_CHARACTERS.sub(lambda match: f"\\x{ord(match.group()):02x}", text)


def info(message: str) -> None:
    """Log a message that ``--quiet`` hides."""
    _logger.info(printable(message))


def warning(message: str) -> None:
    """Log a warning, also with ``--quiet``."""
    _logger.warning("Warning: %s", printable(message))


def error(message: str) -> None:
    """Log why a worker ends, in the form of a failing command's message."""
    _logger.error("Error: %s", printable(message))


def silence() -> None:
    """Log nothing but errors; for all ranks but the one that logs."""
    _logger.setLevel(logging.ERROR)


class ProgressBar:
    """Counts work done in a ``with`` block: a bar on a terminal, else a line every ten seconds.

    Both show the remaining time if the total is known or was given to ``expect``, or the time until
    ``deadline``, in monotonic time, if the work stops before. The bar is removed at the end of the
    block. With ``in_lines``, a terminal gets lines too: other programs
    may write to it at the same time, such as one that reads our output from a pipe, and would write
    behind a bar.
    """

    def __init__(
        self,
        description: str,
        unit: str,
        total: int | None = None,
        initial: int = 0,
        *,
        hidden: bool = False,
        in_lines: bool = False,
        deadline: float | None = None,
    ) -> None:
        self._description, self._unit, self._total = description, unit, total
        self._initial = self._done = initial
        self._notes, self._is_estimate, self._deadline = "", False, deadline
        self._started = self._last_report = time.monotonic()
        shown = not hidden and _logger.isEnabledFor(logging.INFO)
        self._bar: TerminalBar | None = None
        self._plain = shown and (in_lines or not sys.stderr.isatty())
        if shown and not self._plain:
            # tqdm takes as long as half of numpy, and most output has no bar.
            from nmt_cli.messages.terminal_bar import TerminalBar

            self._bar = TerminalBar(
                self._fields, desc=printable(description), total=total, initial=initial
            )

    def expect(self, total: int, is_estimate: bool = True) -> None:
        """Show ``total`` as the total from now on, after "about" if it is an estimate."""
        self._total, self._is_estimate = total, is_estimate
        if self._bar is not None:
            self._bar.total = total

    def advance(self, amount: int = 1, notes: str | None = None) -> None:
        """Count ``amount`` more; ``notes`` are shown after the count until the next notes."""
        self._done += amount
        if notes is not None:
            self._notes = notes
        if self._bar is not None:
            with suppress(OSError):
                self._bar.update(amount)
        elif self._plain:
            self._report_now_and_then()

    def _report_now_and_then(self) -> None:
        now = time.monotonic()
        if now - self._last_report < SECONDS_BETWEEN_PLAIN_REPORTS:
            return
        self._last_report = now
        of_total, notes = "", f"  {self._notes}" if self._notes else ""
        if self._total is not None:
            total = max(self._total, self._done)
            of_total = f" of {'about ' if self._is_estimate else ''}{total:,}"
        count = f"{self._done:,}{of_total} {self._unit}"
        info(f"{self._description}: {', '.join([count, *self._times()])}{notes}")

    def _fields(self) -> list[str]:
        """Return what the bar of a terminal shows, the most important first."""
        count, (rate, elapsed, *left) = f"{self._done:,} {self._unit}", self._times()
        if self._total is not None:
            count = f"{self._done:,}/{max(self._total, self._done):,}"
        return [count, *left, *filter(None, self._notes.split(", ")), rate, elapsed]

    def _times(self) -> list[str]:
        now = time.monotonic()
        elapsed = now - self._started
        rate = (self._done - self._initial) / elapsed if elapsed > 0 else 0.0
        times = [
            f"{f'{rate:,.0f}' if rate >= 10 else f'{rate:.2g}'} {self._unit}/s",
            f"{_clock(elapsed)} elapsed",
        ]
        seconds = math.inf
        if self._total is not None and rate > 0:
            seconds = max(0, self._total - self._done) / rate
        if self._deadline is not None and self._deadline - now < seconds:
            times.append(f"ends in {_clock(max(0.0, self._deadline - now))}")
        elif seconds < math.inf:
            times.append(f"{_clock(seconds)} left")
        return times

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            with suppress(OSError):
                self._bar.close()


def _clock(seconds: float) -> str:
    """Return ``seconds`` as minutes and seconds, with hours if there are any."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:d}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes:02d}:{seconds:02d}"


progress = ProgressBar  # with progress("reading", "pairs") as counter
