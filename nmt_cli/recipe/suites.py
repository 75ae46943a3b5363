"""Test suites of ``nmt-cli check``: what translations must have and must not have."""

from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, ValidationError

from nmt_cli.files.lines import json_record, texts_of
from nmt_cli.messages.errors import UserError
from nmt_cli.recipe.limits import text_of_problem
from nmt_cli.recipe.reading.problem_messages import dotted
from nmt_cli.recipe.values import Section

Texts = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...],
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
]


class SuiteCase(Section):
    """A line of a suite. Lists of one text may be the text itself."""

    source: Annotated[str, Field(min_length=1)]
    """The text to translate."""
    any_of: Texts = ()
    """Its translation has at least one of these."""
    none_of: Texts = ()
    """It has none of these."""
    matches: Texts = ()
    """All of these regular expressions match in it."""
    not_matches: Texts = ()
    """None of these regular expressions matches in it."""
    category: str = "all"
    """Results are by category."""
    reference: str | None = None
    """A correct translation, for BLEU and chrF2."""

    @property
    def patterns(self) -> dict[str, str]:
        """All regular expressions, each with its key."""
        keys = ("matches", "not_matches")
        return {pattern: key for key in keys for pattern in getattr(self, key)}


def read_suite(path: Path) -> dict[int, SuiteCase]:
    """Return the cases in a file of JSON lines by line number; blank lines are left out.

    Raises UserError, with the line, for the first one that is wrong, or if there is none.
    """
    found = dict[int, SuiteCase]()
    for number, line in enumerate(texts_of(path), 1):
        if line.strip():
            try:
                found[number] = SuiteCase.model_validate(json_record(line))
            except ValidationError as error:
                first = error.errors(include_url=False)[0]
                problem = text_of_problem(SuiteCase, first)
                raise UserError(f"{path}:{number}: {dotted(first['loc'])}: {problem}.") from None
            except ValueError as error:
                raise UserError(f"{path}:{number}: {error}.") from None
    if not found:
        raise UserError(f"{path} has no lines; give an object with a source in each.")
    return found
