"""The limits of ``nmt-cli check``: what a model may not pass to be used."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails

from nmt_cli.messages.proposals import any_of, nearest
from nmt_cli.recipe.reading.problem_messages import dotted, place_of, rule_of, shown
from nmt_cli.recipe.reading.recipe_files import read_text
from nmt_cli.recipe.reading.yaml_tree import Finding, error_of, parse_yaml, shortened
from nmt_cli.recipe.values import Flag, Number, Section

Share = Annotated[Number, Field(ge=0, le=1)]
Score = Annotated[Number, Field(ge=0, le=100)]


class QualityLimits(Section):
    """Limits of the scores of each test set."""

    min_bleu: Score | None = None
    """Lowest BLEU."""
    min_chrf: Score | None = None
    """Lowest chrF2."""
    max_bleu_loss: Score | None = None
    """How much less BLEU than OLD's."""
    max_chrf_loss: Score | None = None
    """How much less chrF2 than OLD's."""


class BehaviourLimits(Section):
    """The largest share of lines that may fail each check, of those that it applies to."""

    empty: Share | None = 0.0
    """Nothing in place of a text."""
    untranslated: Share | None = 0.1
    """The source itself."""
    language: Share | None = 0.1
    """Certainly another language or script."""
    repetition: Share | None = 0.02
    """Words again and again."""
    length: Share | None = None
    """Less than half or more than twice as long as the reference."""
    numbers: Share | None = None
    """Other digits."""
    urls: Share | None = None
    """Other URLs."""
    emails: Share | None = None
    """Other e-mail addresses."""
    placeholders: Share | None = None
    """Other placeholders, such as {name} and %s."""
    tags: Share | None = None
    """Other tags, such as <b>."""
    emoji: Share | None = None
    """Other emoji."""
    symbols: Share | None = None
    """Other symbols, such as € and ©."""
    end_punctuation: Share | None = None
    """Another kind of punctuation at the end, or none, or some where there was none."""
    brackets_and_quotes: Share | None = None
    """Brackets or quotation marks without their partners."""
    terms: Share | None = None
    """A term of the glossary without its translation."""


class InvarianceLimits(Section):
    """The largest share of lines whose variant may be translated in another way."""

    min_chrf: Score = 50.0
    """chrF2 between both translations below which they count as different."""
    upper_case: Share | None = None
    """In capital letters."""
    title_case: Share | None = None
    """Each word with a capital letter."""
    no_end_punctuation: Share | None = None
    """Without punctuation at the end."""
    doubled_blanks: Share | None = None
    """Two blanks in place of one."""
    typographic_quotes: Share | None = None
    """Other quotation marks and apostrophes."""
    typing_errors: Share | None = None
    """With typing errors, as augment makes them."""
    decomposed_letters: Share | None = None
    """In Unicode's NFD."""
    joined_sentences: Share | None = None
    """Together with another line."""


class WordLimits(Section):
    """The largest share of single words whose translation may fail."""

    long: Share | None = None
    """More than three words."""
    not_in_lexicon: Share | None = None
    """No piece of it is in the lexicon of MODEL."""


class Limits(Section):
    """All limits; None: the figure is only shown."""

    may_be_worse: Flag = False
    """Whether MODEL may be significantly worse than OLD, in a score or in the lines that fail."""
    quality: QualityLimits = Field(default_factory=QualityLimits)
    behaviour: BehaviourLimits = Field(default_factory=BehaviourLimits)
    invariance: InvarianceLimits = Field(default_factory=InvarianceLimits)
    single_words: WordLimits = Field(default_factory=WordLimits)
    suites: Share | None = None
    """The largest share of lines of each category of a suite that may fail."""


def read_limits(path: Path) -> Limits:
    """Return the limits of a YAML file. Raises RecipeError, which lists all problems by line."""
    tree = parse_yaml(read_text(path, "limits"), shortened(str(path), 1000))
    if not tree.readable:
        raise error_of(tree.findings)
    try:
        limits = Limits.model_validate({} if tree.value is None else tree.value)
    except ValidationError as error:
        found = [
            Finding(
                place_of(each["loc"], tree.places),
                dotted(each["loc"]),
                text_of_problem(each, Limits),
            )
            for each in error.errors(include_url=False)
        ]
        raise error_of([*tree.findings, *found]) from None
    if tree.findings:
        raise error_of(tree.findings)
    return limits


def text_of_problem(details: ErrorDetails, section: type[Section]) -> str:
    """Return what is wrong with a value below ``section``, and what is allowed."""
    kind = details["type"]
    if kind == "extra_forbidden":
        for step in details["loc"][:-1]:
            section = section.model_fields[str(step)].annotation  # type: ignore[assignment]
        known = list(section.model_fields)
        if meant := nearest(str(details["loc"][-1]), known):
            return f"is not a key here; did you mean {any_of(meant)}?"
        return f"is not a key here; those are {', '.join(known)}"
    if kind == "missing":
        return "is missing"
    if kind == "json_invalid":  # the line that it names is the first, as the text has one
        return f"not JSON: {details['ctx']['error']}".replace("line 1 column", "column")
    rule = "must have keys and values" if kind == "model_type" else rule_of(details)
    return f"{rule}, but is {shown(details['input'])}"
