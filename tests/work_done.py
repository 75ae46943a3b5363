"""Counts the work of a function without a clock."""

import sys
from collections.abc import Callable


def lines_run(function: Callable[[], object]) -> int:
    """Return how many lines of Python ``function`` runs."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count
