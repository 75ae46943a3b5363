"""The results as a page: the verdict, then every check with its worst lines, then the cost."""

from collections.abc import Iterator
from itertools import chain

from nmt_cli.commands.model_checks.results import (
    HEADINGS,
    PERCENT,
    Results,
    Row,
    with_distinct_examples,
)
from nmt_cli.report import frame

OF_SOURCE, NO_TEXTS = {"source"}, {"line", "chrF2", "problem"}  # columns of examples


def as_html(results: Results, languages: tuple[str, str]) -> str:
    """Return the page; ``languages`` are those of the texts, the source first."""
    subtitle = results.model if results.old is None else f"{results.model} against {results.old}"
    return frame.page("Check of a model", _parts(results, languages), subtitle)


def _parts(results: Results, languages: tuple[str, str]) -> Iterator[str]:
    verdicts = [row.verdict for row in results.checks]
    yield frame.tiles(
        [
            ("May be used", "no" if results.problems else "yes", results.verdict),
            *(
                (row.label, f"{row.value:.2f}", "" if row.old is None else f"OLD {row.old:.2f}")
                for row in results.checks
                if row.unit != PERCENT
            ),
            ("Checks", f"{len(results.checks):,}", "of MODEL's translations"),
            *(
                (f"Significantly {name}", f"{verdicts.count(name):,}", "than with OLD")
                for name in ("better", "worse")
                if results.old is not None
            ),
        ]
    )
    if results.problems:
        yield frame.section("Limits that are not met", *map(frame.note, results.problems))
    for group, rows in results.groups().items():
        table = frame.table(results.cells(HEADINGS), (results.cells(row.cells()) for row in rows))
        unit = [frame.note(f"Figures are {PERCENT}.")] if rows[0].unit == PERCENT else []
        examples = (_examples(row, languages) for row in with_distinct_examples(rows))
        yield frame.section(group.capitalize(), *unit, table, *examples)
    if results.notes:
        yield frame.section("Not checked", *map(frame.note, results.notes))
    if results.cost:
        headings, *costs = results.costs()
        yield frame.section("Cost", frame.table(headings, costs))


def _examples(row: Row, languages: tuple[str, str]) -> str:
    names = dict.fromkeys(chain.from_iterable(row.examples))  # a probe has no reference
    of_names = [None if name in NO_TEXTS else languages[name not in OF_SOURCE] for name in names]
    rows = [[example.get(name, "") for name in names] for example in row.examples]
    texts = frame.examples([*names], of_names, rows)
    return frame.folded(f"{row.label}: the worst lines", texts)
