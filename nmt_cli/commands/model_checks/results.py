"""What the checks of a model found: the figures of the table, of JSON, JUnit and the page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from nmt_cli.commands.model_checks.texts import Example
from nmt_cli.commands.scoring.system_comparison import p_value_text
from nmt_cli.files.lines import one_line
from nmt_cli.messages.figures import aligned, counted
from nmt_cli.messages.logs import printable
from nmt_cli.metrics.significance import Verdict

PERCENT = "% of lines that fail"
HEADINGS = "check", "lines", "MODEL", "OLD", "p", "limit", ""
OF_OLD = {3, 4}  # places of headings


class Row(NamedTuple):
    """One check: a score, or the percentage of lines that fail."""

    group: str
    name: str
    lines: int  # that it applies to
    value: float | None  # None: it applies to no line
    old: float | None = None
    p_value: float | None = None  # of a difference from OLD
    verdict: Verdict | None = None
    unit: str = PERCENT
    limit: str = ""  # in words
    problems: Sequence[str] = ()  # a sentence for each limit that is not met
    examples: Sequence[Example] = ()  # the worst

    @property
    def label(self) -> str:
        """The name to read, on a line."""
        return in_words(self.name)

    def cells(self) -> list[str]:
        """Return the row of a table, as text."""
        figures = ["" if each is None else f"{each:.2f}" for each in (self.value, self.old)]
        outcomes = {
            "nothing to check": self.value is None,
            "better": self.verdict == "better",
            "worse": self.verdict == "worse",
            "FAILS": bool(self.problems),
        }
        outcome = ", ".join(name for name, applies in outcomes.items() if applies)
        p_value = p_value_text(self.p_value)
        return [self.label, f"{self.lines:,}", *figures, p_value, self.limit, outcome]

    def shown_examples(self) -> Iterator[str]:
        """Yield the lines of the examples, with a blank line behind each."""
        for example in self.examples:
            width = max(map(len, example))
            yield from (f"  {name:<{width}}  {printable(text)}" for name, text in example.items())
            yield ""


def in_words(name: str) -> str:
    """Return a name to read, on a line."""
    return printable(one_line(name.replace("_", " ")))


def with_distinct_examples(rows: Iterable[Row]) -> list[Row]:
    """Return the rows that have examples.

    Of rows behind each other with the same examples, as both scores of a set, only the first.
    """
    first = (next(same) for _, same in groupby(rows, key=lambda row: id(row.examples)))
    return [row for row in first if row.examples]


class Results(NamedTuple):
    """All that was found."""

    model: str
    old: str | None
    checks: Sequence[Row]
    notes: Sequence[str]  # what was not checked, and why
    cost: Sequence[Mapping[str, Any]] = ()  # of MODEL and OLD; other figures each time

    @property
    def problems(self) -> list[str]:
        """The limits that are not met, as sentences."""
        return [f"{row.group}, {row.label}: {each}" for row in self.checks for each in row.problems]

    @property
    def verdict(self) -> str:
        """Whether the model may be used, as a sentence."""
        if not self.problems:
            return "The model may be used: every limit is met."
        limits = counted(len(self.problems), "limit is", "limits are")
        return f"The model may not be used: {limits} not met."

    def groups(self) -> dict[str, list[Row]]:
        """Return the rows of each group."""
        found = dict[str, list[Row]]()
        for row in self.checks:
            found.setdefault(row.group, []).append(row)
        return found

    def as_figures(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        checks = [check._asdict() for check in self.checks]
        own = {"may_be_used": not self.problems, "problems": self.problems}
        return {**own, **self._asdict(), "checks": checks}

    def as_table(self) -> str:
        """Return a table of all checks, and the worst lines of those that fail or are worse."""
        rows = [self.cells(HEADINGS)]
        for group, checks in self.groups().items():
            unit = f", {PERCENT}" if checks[0].unit == PERCENT else ""
            rows.append(self.cells([f"{group}{unit}", *[""] * len(HEADINGS[1:])]))
            for label, *others in map(Row.cells, checks):
                rows.append(self.cells([f"  {label}", *others]))
        lines = [*aligned(rows), "", *aligned(self.costs()), ""]
        bad = (row for row in self.checks if row.problems or row.verdict == "worse")
        for row in with_distinct_examples(bad):
            lines.append(f"{row.group}, {row.label}: {counted(len(row.examples), 'example')}")
            lines += row.shown_examples()
        return "\n".join([*lines, *self.notes, *self.problems, self.verdict])

    def cells(self, cells: Sequence[str]) -> list[str]:
        """Return the cells of a row without those of OLD if there is none."""
        return [cell for place, cell in enumerate(cells) if self.old or place not in OF_OLD]

    def costs(self) -> list[list[str]]:
        """Return the rows of a table of what both models cost, with headings."""
        if not self.cost:
            return [["cost: not measured"]]
        rows = [["cost, with two threads", *["MODEL", "OLD"][: len(self.cost)]]]
        for key in self.cost[0]:
            rows.append([f"  {in_words(key)}", *(f"{each[key]:,.1f}" for each in self.cost)])
        return rows
