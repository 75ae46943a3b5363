"""What is wanted of all translations, and a line with what is wanted for this line alone."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from nmt_cli.recipe.translation_options import Choose

if TYPE_CHECKING:
    from nmt_cli.corpus.text.glossary import Glossary

KEEPS_PIECES = "protected text is put in place of its pieces, but --keep-pieces asks for pieces"
ONLY_TEXT = "a soft glossary adds words, and is not for markup, alignments and protected text"


class LineError(ValueError):
    """A line cannot be translated; the message is the reason."""


TextOrPieces = str | Sequence[str]  # text, which the tokenizer cuts into pieces, or a list of them


class AnyOf(NamedTuple):
    """Several phrases, such as the forms of a word; an output must hold at least one of them."""

    phrases: Sequence[TextOrPieces]


class TagRules(NamedTuple):
    """Names of elements of markup that are treated in another way than their names say."""

    kept: frozenset[str] = frozenset()  # their content stays as it is
    separating: frozenset[str] = frozenset()  # they separate the text before from the text after
    inline: frozenset[str] = frozenset()  # they never do
    detects: bool = True  # whether other elements may


NO_TAG_RULES = TagRules()
# Of a window of lines that are translated together.
WINDOW_LINES = 4096
WINDOW_CHARACTERS = 1 << 21


class Request(NamedTuple):
    """A line to translate; None stands for what the translator would take by itself.

    With an ``error``, the line is not translated, and its translation has this error.
    """

    text: str
    line: int | None = None  # the line's number, which decides what is sampled; by default its
    # place, counted from 1, among the lines of the call
    prefix: TextOrPieces | None = None  # what the translation begins with; "": nothing is forced
    # Phrases that occur in it, and those that do not, beside those of all lines.
    required: Sequence[TextOrPieces | AnyOf] = ()
    banned: Sequence[TextOrPieces] = ()
    n_best: int | None = None  # how many translations
    beam_size: int | None = None  # at most that of the translator
    length_penalty: float | None = None
    split: bool | None = None  # whether each of its sentences is translated by itself
    markup: Literal["html", "xml", "none"] | None = None  # what the text is written in
    error: str | None = None
    # Terms beside those of all lines: a mapping has the translation of each, or a list of forms.
    glossary: Glossary | Mapping[str, str | Sequence[str]] | None = None
    alignments: bool | None = None  # whether its words are aligned; those of all lines always are
    # Patterns of text that is copied, beside those of all lines; whether it fails where it is not.
    protect: Sequence[str] = ()
    protect_strict: bool | None = None
    no_repeat_ngram: int | None = None  # it never repeats a sequence of this many pieces
    choose: Choose | None = None  # by what the n best are ranked
    tags: TagRules = NO_TAG_RULES  # of its markup
    tag: str | None = None  # in front of its source, in place of that of all lines; "": none
    source_language: str | None = None  # whose rules cut its sentences

    @property
    def own_rules(self) -> Hashable:
        """A key of its phrases, terms, patterns and other rules; None if it has none."""
        phrases = self.required or self.banned or self.glossary or self.protect
        if not phrases and self.prefix is None and self.no_repeat_ngram is None:
            return None
        rules = self.prefix, self.required, self.banned, self.glossary, self.protect
        return _frozen((*rules, self.no_repeat_ngram))

    @property
    def size(self) -> int:
        """How many characters its text has, and its phrases, terms and patterns."""
        constraints = self.prefix, self.required, self.banned, self.glossary, self.protect
        return len(self.text) + sum(_size(each) for each in constraints if each)


def _size(value: Any) -> int:
    """Return how many characters are in a text, or in what holds texts."""
    if isinstance(value, str):
        return len(value)
    if not isinstance(value, Collection):  # a glossary
        return int(value.num_characters)
    return sum(map(_size, value.items() if isinstance(value, Mapping) else value))


def _frozen(value: Any) -> Hashable:
    """Return a key for what may change later, such as a list of phrases."""
    if isinstance(value, str) or not isinstance(value, Collection):
        return cast(Hashable, value)
    return (type(value), *map(_frozen, value.items() if isinstance(value, Mapping) else value))


def numbered(lines: Iterable[str | Request], first: int = 1) -> Iterator[Request]:
    """Yield a request for each line, with its number; the first line without one is ``first``.

    Raises TypeError for what is neither a text nor a request.
    """
    for number, line in enumerate(lines, start=first):
        if isinstance(line, str):
            yield Request(line, line=number)
        elif isinstance(line, Request) and isinstance(line.text, str):
            yield line if line.line is not None else line._replace(line=number)
        else:
            kind = "Request without a text" if isinstance(line, Request) else type(line).__name__
            raise TypeError(f"line {number:,} must be a str or a Request, but is a {kind}")


def require_lines(lines: Iterable[str | Request]) -> None:
    """Raise TypeError for a single line, whose characters or fields would be taken for lines."""
    if isinstance(lines, str | bytes | Request):
        kind = type(lines).__name__
        raise TypeError(f"lines must be several, such as a list, but are a {kind}; give [line]")


def windows_of(requests: Iterable[Request]) -> Iterator[list[Request]]:
    """Yield the lines that are translated together; the last window may be empty."""
    window: list[Request] = []
    num_characters = 0
    for request in requests:
        window.append(request)
        num_characters += len(request.text)
        if len(window) >= WINDOW_LINES or num_characters >= WINDOW_CHARACTERS:
            yield window
            window, num_characters = [], 0
    yield window
