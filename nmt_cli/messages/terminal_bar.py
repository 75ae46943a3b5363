"""The bar that shows progress on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, MutableMapping
from typing import Any

from tqdm import tqdm
from tqdm.utils import disp_len

BAR_WIDTH = 20  # characters
USUAL_COLUMNS = 80  # where the width of the terminal is not known


class TerminalBar(tqdm):  # type: ignore[type-arg]  # it iterates over nothing
    """A bar with those of ``fields`` beside it, the first ones, that fit the width."""

    def __init__(self, fields: Callable[[], list[str]], **options: Any) -> None:
        self._fields = fields
        super().__init__(leave=False, dynamic_ncols=True, file=sys.stderr, **options)

    @property
    def format_dict(self) -> MutableMapping[str, Any]:
        """What tqdm shows, with a format for the present width of the terminal."""
        facts = super().format_dict
        first, *more = self._fields()
        room = (facts["ncols"] or USUAL_COLUMNS) - 1  # a full line would continue on the next one
        room -= disp_len(f"{self.desc} || {first}")
        shape, width = "{desc}: {shown}", 0
        if self.total is not None:
            width = max(1, min(BAR_WIDTH, room))
            shape = f"{{desc}} |{{bar:{width}}}| {{shown}}"
        shown, room = first, room - width
        for field in more:
            room -= disp_len(field) + 2
            if room < 0:
                break
            shown += f", {field}"
        total = self.total and max(self.total, self.n)
        return {**facts, "total": total, "bar_format": shape, "shown": shown}

    @staticmethod
    def status_printer(file: Any) -> Callable[[str], None]:
        """Return a function that draws the bar."""

        def draw(bar: str) -> None:
            # The cursor waits at the start, from where a narrower terminal continues the bar on
            # further lines. All are erased. tqdm's spaces would fill further lines themselves.
            file.write(f"\r{bar}\x1b[J\r")
            file.flush()

        return draw
