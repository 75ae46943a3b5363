"""Reads what a language model answered, and checks each translation."""

import json
import re
from collections import Counter
from collections.abc import Iterator

from nmt_cli.commands.distilling.language_model.chat_client import Answer
from nmt_cli.commands.distilling.language_model.prompts import FORM, Prompt, SourceLine
from nmt_cli.corpus.text.filters import CHECKS, Pairs
from nmt_cli.corpus.text.translation_faults import (
    LEAST_PROBABILITY,
    TAG,
    has_other_digits,
    is_of_other_language,
)
from nmt_cli.files.lines import is_blank, one_line, why_not_unicode
from nmt_cli.recipe.schema import Recipe
from nmt_cli.translating.interface.protection import PLACEHOLDERS, Protection

END_OF_THOUGHT = "</think>"
OBJECT = re.compile(r"\{\s*\"")
SHOWN = 200  # characters of each text that failed
MOST_TRIED = 50  # places where an object may begin: each is read to where it is wrong
COMMENT = re.compile(
    r"\s*(?:(?:sure|certainly|of course|okay|ok)\b[,!.:]*\s*)?"
    r"(?:here(?:['’]s| is| are) (?:the|your|a|my) (?:\w+ ){0,3}translat"
    r"|(?:the )?translat(?:ion|ed text|ed line)s?\s*(?:is|:)|as an ai\b"
    r"|(?:i(?: a|['’])m sorry\b.{0,40}?)?\bi(?:(?: a|['’])m unable to| can(?:not|['’]t)) "
    r"(?:assist|help|translat|provid|fulfil|comply))",
    re.IGNORECASE,
)
# Where the recipe has no filter of lengths. Languages differ by less, unless a line is short.
MOST_CHARACTERS_RATIO, SHORT = 6.0, 20
BEGINNING = 40  # characters of an instruction that no translation contains
REASONS = {
    "max_characters_ratio": "its length does not fit",
    "max_words_ratio": "its length does not fit",
    "min_equal_digits": "other numbers",
    "remove_different_urls": "other URLs",
}


class WrongAnswerError(Exception):
    """A translation, or a whole answer, fails a check; the message is the reason."""

    def __init__(self, reason: str, text: str = "") -> None:
        super().__init__(reason)
        self.text = text


def translations_in(answer: Answer, num_lines: int) -> list[str | WrongAnswerError]:
    """Return the translations by number, or what is wrong with them: none, twice, too many."""
    numbers = [str(number) for number in range(1, num_lines + 1)]
    try:
        if answer.problem is not None:
            raise WrongAnswerError(answer.problem)
        pairs = _last_object(answer.content.rpartition(END_OF_THOUGHT)[2])
        values = dict(pairs)
        if len(values) < len(pairs):
            raise WrongAnswerError("a number twice", answer.content)
        if values.keys() - set(numbers):
            raise WrongAnswerError("more than the lines that were asked for", answer.content)
    except WrongAnswerError as error:
        return [error] * num_lines
    return [text if isinstance(text := values.get(each), str) else "" for each in numbers]


def _last_object(text: str) -> list[tuple[str, object]]:
    """Return the pairs of the last JSON object in ``text`` that is not in another one.

    It may stand behind a comment or in a fence, and a model may repeat the question before it.
    """
    decoder = json.JSONDecoder(object_pairs_hook=lambda pairs: pairs)
    found: list[tuple[str, object]] | None = None
    place = 0
    for _ in range(MOST_TRIED):
        if (match := OBJECT.search(text, place)) is None:
            break
        try:
            found, place = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            place = match.end()
    if found is None:
        raise WrongAnswerError("no JSON object", text)
    return found


class Checks:
    """What the translations of a text must fulfil, by its languages and the recipe's filters."""

    def __init__(self, recipe: Recipe, prompt: Prompt) -> None:
        filters, self.prompt = recipe.data.filters, prompt
        ratios = {name: getattr(filters, name) for name in REASONS if name.startswith("max")}
        given = {**ratios, "min_equal_digits": filters.min_equal_digits}
        limits = {**given, "remove_different_urls": True}
        self._limits = {name: limit for name, limit in limits.items() if limit is not None}
        self._has_ratio = any(ratios.values())
        self._least_probability = filters.min_language or LEAST_PROBABILITY
        self._instructions = [FORM[:BEGINNING], prompt.instruction(())[:BEGINNING]]
        self._protection = Protection((PLACEHOLDERS, TAG))
        self._symbols = recipe.tokenizer.user_defined_symbols

    def record_of(self, line: SourceLine, text: str | WrongAnswerError) -> dict[str, str]:
        """Return what is stored of a translation, or of what is wrong with an answer."""
        try:
            if isinstance(text, WrongAnswerError):
                raise text
            return {"key": line.key.hex(), "text": self.checked(line.text, text)}
        except WrongAnswerError as error:
            texts = {"source": line.text[:SHOWN], "answer": error.text[:SHOWN]}
            return {"key": line.key.hex(), "failed": str(error), **texts}

    def checked(self, source: str, text: str) -> str:
        """Return a translation as one line. Raises WrongAnswerError if it fails a check."""
        if is_blank(text):
            raise WrongAnswerError("no text under its number", text)
        if why_not_unicode(text):
            raise WrongAnswerError("half of a surrogate pair", text)
        text = one_line(text).replace("\t", " ").strip()
        for problem in self._problems_of(source, text):
            raise WrongAnswerError(problem, text)
        return text

    def _problems_of(self, source: str, text: str) -> Iterator[str]:
        # The length first: what follows may take long for a text without end.
        shorter, longer = sorted(map(len, (source, text)))
        if not self._has_ratio and longer > MOST_CHARACTERS_RATIO * max(shorter, SHORT):
            yield REASONS["max_characters_ratio"]
        pairs = Pairs(((source,), (text,)), self.prompt.languages, (None, None))
        for name, limit in self._limits.items():
            if CHECKS[name](pairs, limit)[0]:
                yield REASONS[name]
        if "min_equal_digits" not in self._limits and has_other_digits(
            source, text, self.prompt.languages
        ):
            yield REASONS["min_equal_digits"]
        if COMMENT.match(text) and not COMMENT.match(source):
            yield "a comment or a refusal"
        if any(each in text and each not in source for each in self._instructions):
            yield "the instruction"
        if self._kept(source) != self._kept(text):
            yield "other placeholders or tags"
        if is_of_other_language(source, text, self.prompt.languages, self._least_probability):
            yield "another language"

    def _kept(self, text: str) -> Counter[str]:
        """Count what a translation keeps, in any order."""
        found = Counter(text[each.begin : each.end] for each in self._protection.found_in(text))
        return found + Counter({each: text.count(each) for each in self._symbols})
