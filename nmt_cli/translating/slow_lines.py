"""Names a line that takes long by itself, while it does."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nmt_cli.messages import logs
from nmt_cli.messages.figures import counted
from nmt_cli.search.search import Sentence, SlotSearch

FIRST_REPORT_SECONDS, SECONDS_BETWEEN_LOOKS = 10.0, 0.5


class SlowLines:
    """Reports a line when nothing but its sentences was searched for 10 s, 20 s, 40 s ...

    One object is for the lines that are translated together.
    """

    def __init__(
        self,
        sentences_of: Mapping[int, Sequence[Sentence]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``sentences_of`` are the sentences of each line number."""
        self._sentences_of, self._clock = sentences_of, clock
        # By the identities of sentences, which live as long as this object.
        self._line_of = {id(each): line for line, own in sentences_of.items() for each in own}
        self._line: int | None = None
        self._since = self._next_look = clock()
        self._next_report = FIRST_REPORT_SECONDS

    def look(self, search: SlotSearch[Any]) -> None:
        """Report a line if it is due; call it after each step of ``search``."""
        now = self._clock()
        if now < self._next_look:
            return
        self._next_look = now + SECONDS_BETWEEN_LOOKS
        lines = {self._line_of.get(id(each)) for each in search.inside()}
        line = lines.pop() if len(lines) == 1 else None
        if line is None or line != self._line:
            self._line, self._since, self._next_report = line, now, FIRST_REPORT_SECONDS
        elif now - self._since >= self._next_report:
            self._next_report *= 2
            logs.info(
                f"{self._description(line)} takes long, {now - self._since:.0f} s by itself so far."
            )

    def _description(self, line: int) -> str:
        sentences = {tuple(each.tokens) for each in self._sentences_of[line]}  # not each sample
        pieces = counted(sum(map(len, sentences)), "piece")
        parts = f" in {len(sentences):,} parts" if len(sentences) > 1 else ""
        return f"line {line:,} with {pieces}{parts}"
