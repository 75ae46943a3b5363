"""Applies test suites: what translations must have and must not have, by category."""

from __future__ import annotations

import re
import signal
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from nmt_cli.commands.model_checks.shares import Check, Judged
from nmt_cli.commands.model_checks.texts import Case, TestSet, Translations
from nmt_cli.corpus.references import references_of
from nmt_cli.corpus.text.glossary import Term
from nmt_cli.files.lines import is_blank, one_line
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.logs import printable
from nmt_cli.recipe.suites import SuiteCase, read_suite

SECONDS = 2  # of CPU, for one regular expression in one text; some searches would never end


def has_match(pattern: str, text: str) -> bool | None:
    """Return whether a regular expression matches in ``text``; None if that takes too long.

    Only the main thread may search. Raises ValueError if the regular expression is wrong.
    """

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGPROF, stop)  # searches look for signals again and again
    # The time of the kernel counts too, which gives a search that fills memory most of its time.
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what later versions of Python mean by a pattern
            return re.search(pattern, text) is not None
    except (TimeoutError, MemoryError):
        return None
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


class Suite(NamedTuple):
    """A suite: its lines as texts to translate, and what is wanted of each."""

    name: str
    cases: Mapping[Case, SuiteCase]

    @classmethod
    def read(cls, path: Path, tag: str | None, languages: tuple[str, str]) -> Suite:
        """Return the suite of a file. Raises UserError if it or a regular expression is wrong."""
        cases = read_suite(path)
        for number, case in cases.items():
            for pattern, key in case.patterns.items():
                try:
                    has_match(pattern, "")
                except ValueError as error:
                    raise UserError(f"{path}:{number}: {key}: {error}.") from None
        name = printable(one_line(path.name.split(".")[0]))
        found = {
            Case(case.source, tag, languages, f"{name}:{number}", case.reference): case
            for number, case in cases.items()
            if not is_blank(case.source)
        }
        return cls(name, found)

    def as_set(self) -> TestSet:
        """Return its lines with references as a test set."""
        cases = [case for case in self.cases if case.reference is not None]
        references = [case.reference or "" for case in cases]
        return TestSet(self.name, cases, references_of(None, references))

    def checks(self, limit: float | None) -> Iterator[Check]:
        """Yield a check for each category."""
        too_slow = set[str]()

        def judged(case: Case, models: Translations) -> Judged | None:
            wanted = self.cases[case]
            if not (wanted.patterns or wanted.any_of or wanted.none_of):
                return None
            problems = list(_problems(wanted, models[case.text], too_slow))
            return Judged(bool(problems), len(problems), {"problem": "; ".join(problems)})

        for category in dict.fromkeys(wanted.category for wanted in self.cases.values()):
            own = [case for case, wanted in self.cases.items() if wanted.category == category]
            yield Check(f"suite {self.name}", category, limit, own, judged)


def _problems(wanted: SuiteCase, translation: str, too_slow: set[str]) -> Iterator[str]:
    """Yield what is wrong with a translation; forms are found as those of a glossary.

    A regular expression that is in ``too_slow``, or gets into it here, is not searched for again.
    """
    if wanted.any_of and Term("", wanted.any_of).form_in(translation) is None:
        yield f"it has none of {', '.join(wanted.any_of)}"
    if (form := Term("", wanted.none_of).form_in(translation)) is not None:
        yield f"it has {form}"
    for pattern in wanted.patterns:
        found = None if pattern in too_slow else has_match(pattern, translation)
        should = pattern in wanted.matches
        if found is None:
            too_slow.add(pattern)
            yield f"the regular expression takes too long: {pattern}"
        elif found is not should:
            yield f"{pattern} {'does not match' if should else 'matches'}"
