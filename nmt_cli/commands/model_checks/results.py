"""What the checks of a model found: the figures of the table, of JSON, JUnit and the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from nmt_cli.commands.model_checks.texts import Example
from nmt_cli.commands.scoring.system_comparison import p_value_text
from nmt_cli.files.lines import one_line
from nmt_cli.messages.figures import aligned, counted
from nmt_cli.messages.logs import printable
from nmt_cli.metrics.significance import Verdict

PERCENT = "% of lines that fail"
COSTS = {  # by their keys
    "lines_per_second": "  lines/s",
    "ms_of_one_line": "  ms of one line",
    "megabytes_in_memory": "  MB of memory",
    "megabytes_on_disk": "  MB on disk",
}
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
        return printable(one_line(self.name.replace("_", " ")))

    def cells(self) -> list[str]:
        """Return the row of a table, as text."""
        if self.value is None:
            return [self.label, "0", "", "", "", "", "nothing to check"]
        figures = ["" if each is None else f"{each:.2f}" for each in (self.value, self.old)]
        p_value = p_value_text(self.p_value)
        verdict = self.verdict if self.verdict in {"better", "worse"} else None
        outcome = ", ".join(filter(None, [verdict, "FAILS" if self.problems else None]))
        return [self.label, f"{self.lines:,}", *figures, p_value, self.limit, outcome]

    def shown_examples(self) -> Iterator[str]:
        """Yield the lines of the examples, with a blank line behind each."""
        for example in self.examples:
            width = max(map(len, example))
            yield from (f"  {name:<{width}}  {printable(text)}" for name, text in example.items())
            yield ""


class Results(NamedTuple):
    """All that was found."""

    model: str
    old: str | None
    rows: Sequence[Row]
    notes: Sequence[str]  # what was not checked, and why
    cost: Sequence[Mapping[str, Any]] = ()  # of MODEL and OLD; other figures each time

    @property
    def problems(self) -> list[str]:
        """The limits that are not met, as sentences."""
        return [f"{row.group}, {row.label}: {each}" for row in self.rows for each in row.problems]

    @property
    def verdict(self) -> str:
        """Whether the model may be used, as a sentence."""
        if not self.problems:
            return "The model may be used: every limit is met."
        number = len(self.problems)
        are = "limit is" if number == 1 else "limits are"
        return f"The model may not be used: {number:,} {are} not met."

    def groups(self) -> dict[str, list[Row]]:
        """Return the rows of each group."""
        found = dict[str, list[Row]]()
        for row in self.rows:
            found.setdefault(row.group, []).append(row)
        return found

    def as_figures(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        return {
            "model": self.model,
            "old": self.old,
            "may_be_used": not self.problems,
            "problems": self.problems,
            "notes": self.notes,
            "checks": [row._asdict() for row in self.rows],
            "cost": self.cost,
        }

    def as_table(self) -> str:
        """Return a table of all checks, and the worst lines of those that fail or are worse."""
        tables = [*aligned(self.table()), "", *aligned(self.cost_table()), ""]
        return "\n".join([*tables, *self._examples(), *self._ending()])

    def cost_table(self) -> list[list[str]]:
        """Return what both models cost, with a heading."""
        names = ["MODEL", "OLD"][: len(self.cost)]
        rows = [[name, *(f"{each[key]:,.1f}" for each in self.cost)] for key, name in COSTS.items()]
        return [["cost, with two threads", *names], *rows] if names else [["cost: not measured"]]

    def shown(self, cells: Sequence[str]) -> list[str]:
        """Return the cells of a row without those of OLD if there is none."""
        return [cell for place, cell in enumerate(cells) if self.old or place not in OF_OLD]

    def table(self) -> Iterator[list[str]]:
        """Yield the rows of the table, with a heading for each group."""
        yield self.shown(HEADINGS)
        for group, rows in self.groups().items():
            unit = f", {PERCENT}" if rows[0].unit == PERCENT else ""
            yield self.shown([f"{group}{unit}", *[""] * (len(HEADINGS) - 1)])
            for label, *others in map(self.cells, rows):
                yield [f"  {label}", *others]

    def cells(self, row: Row) -> list[str]:
        """Return the cells of a check."""
        return self.shown(row.cells())

    def _examples(self) -> Iterator[str]:
        before: Sequence[Example] = ()  # the scores of a set have the same ones
        for row in self.rows:
            is_bad = row.problems or row.verdict == "worse"
            if is_bad and row.examples and row.examples is not before:
                before = row.examples
                yield f"{row.group}, {row.label}: {counted(len(row.examples), 'example')}"
                yield from row.shown_examples()

    def _ending(self) -> Iterator[str]:
        yield from self.notes
        yield from self.problems
        yield self.verdict
