"""Counts the lines that fail a check, beside those that fail with OLD."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import comb
from typing import NamedTuple, TypeVar

from nmt_cli.commands.model_checks.results import Example, Row
from nmt_cli.commands.model_checks.texts import Translations
from nmt_cli.commands.scoring.system_comparison import p_value_text
from nmt_cli.metrics.significance import Verdict

MOST_EXAMPLES = 5
# Of the test whether more lines fail than with OLD. There are many checks: with 0.05, one of them
# would often be called worse by chance.
LEVEL = 0.01

T = TypeVar("T")


class Judged(NamedTuple):
    """What a check found in one line."""

    fails: bool
    example: Example
    badness: float = 0.0  # the worst of those that fail are shown


class Judge(NamedTuple):
    """Applies checks to the translations of MODEL and, if there is one, of OLD."""

    models: Sequence[Translations]  # MODEL's, and OLD's
    may_be_worse: bool

    def share(
        self,
        group: str,
        name: str,
        items: Iterable[T],
        judge: Callable[[T, Translations], Judged | None],
        limit: float | None,
    ) -> Row:
        """Return the row of a check, which applies to the items where ``judge`` is not None.

        Whether it is None depends on the item alone, so it is the same for both models.
        """
        found = ([judge(item, each) for each in self.models] for item in items)
        lines = [[each for each in both if each is not None] for both in found if both[0]]
        row = Row(
            group, name, len(lines), None, limit="" if limit is None else f"{100 * limit:g} %"
        )
        if not lines:
            return row
        fails = [[each.fails for each in side] for side in zip(*lines, strict=True)]
        shares = [sum(side) / len(lines) for side in fails]
        p_value, verdict = sign_test(*fails) if len(fails) > 1 else (None, None)
        problems = []
        if limit is not None and shares[0] > limit:
            problems.append(
                f"{sum(fails[0]):,} of {len(lines):,} lines fail, at most {limit:.2%} may"
            )
        if verdict == "worse" and not self.may_be_worse:
            problems.append(
                f"significantly more lines fail than with OLD (p {p_value_text(p_value)})"
            )
        return row._replace(
            value=100 * shares[0],
            old=100 * shares[1] if len(shares) > 1 else None,
            p_value=p_value,
            verdict=verdict,
            problems=problems,
            examples=_worst(lines),
        )


def _worst(lines: Sequence[Sequence[Judged]]) -> list[Example]:
    """Return the worst lines that fail, those first that do not fail with OLD."""
    failed = [both for both in lines if both[0].fails]
    failed.sort(key=lambda both: (both[-1].fails and len(both) > 1, -both[0].badness))
    return [
        {**both[0].example, **({"OLD": both[1].example["translation"]} if len(both) > 1 else {})}
        for both in failed[:MOST_EXAMPLES]
    ]


def sign_test(ours: Sequence[bool], old: Sequence[bool]) -> tuple[float, Verdict]:
    """Return how probable so many more failures on one side are by chance, and the verdict.

    This is the exact sign test, of the lines where only one of the two fails.
    """
    worse = sum(a and not b for a, b in zip(ours, old, strict=True))
    better = sum(b and not a for a, b in zip(ours, old, strict=True))
    total = worse + better
    p_value = sum(comb(total, k) for k in range(max(worse, better), total + 1)) / 2**total
    if p_value >= LEVEL:
        return p_value, "not significant"
    return p_value, "worse" if worse > better else "better"
