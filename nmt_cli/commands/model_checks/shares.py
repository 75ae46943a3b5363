"""Counts the lines that fail a check, beside those that fail with OLD."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import comb
from typing import NamedTuple

from nmt_cli.commands.model_checks.results import Row
from nmt_cli.commands.model_checks.texts import Case, Example, Translations
from nmt_cli.commands.scoring.system_comparison import p_value_text
from nmt_cli.metrics.significance import Verdict

MOST_EXAMPLES = 5
# Of the test whether more lines fail than with OLD. There are many checks: with 0.05, one of them
# would often be called worse by chance.
LEVEL = 0.01


class Judged(NamedTuple):
    """What a check found in one line."""

    fails: bool
    badness: float = 0.0  # the worst of those that fail are shown
    more: Example | None = None  # what is shown beside the texts


class Check(NamedTuple):
    """What finds the lines that fail, among those that it applies to."""

    group: str
    name: str
    limit: float | None  # the largest share of lines that may fail
    cases: Sequence[Case]
    # None where it does not apply, which depends on the case alone.
    judge: Callable[[Case, Translations], Judged | None]


def row_of(check: Check, models: Sequence[Translations], *, may_be_worse: bool) -> Row:
    """Return what a check found in the translations of MODEL and, if there is one, of OLD."""
    group, name, limit, cases, judge = check
    found = ((case, [judge(case, each) for each in models]) for case in cases)
    lines = [(case, [each for each in both if each]) for case, both in found if both[0]]
    row = Row(group, name, len(lines), None, limit="" if limit is None else f"{100 * limit:g} %")
    if not lines:
        return row
    fails = [
        [each.fails for each in side] for side in zip(*(both for _, both in lines), strict=True)
    ]
    share, old = [*(sum(side) / len(lines) for side in fails), None][:2]
    p_value, verdict = (None, None) if old is None else sign_test(*fails)
    problems = []
    if limit is not None and share > limit:
        problems.append(f"{sum(fails[0]):,} of {len(lines):,} lines fail, at most {limit:.2%} may")
    if verdict == "worse" and not may_be_worse:
        problems.append(f"significantly more lines fail than with OLD (p {p_value_text(p_value)})")
    failed = [(case, both) for case, both in lines if both[0].fails]
    # Those first that do not fail with OLD.
    worst = sorted(failed, key=lambda line: (line[1][-1].fails, -line[1][0].badness))
    return row._replace(
        value=100 * share,
        old=None if old is None else 100 * old,
        p_value=p_value,
        verdict=verdict,
        problems=problems,
        examples=[case.example(models, both[0].more) for case, both in worst[:MOST_EXAMPLES]],
    )


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
