"""Terms and how they are translated: a file of them, and where they occur in a text."""

from __future__ import annotations

import hashlib
import unicodedata
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from nmt_cli.corpus.tokenizers.piece_words import is_of_script_without_spaces
from nmt_cli.files.text_files import read_packed_text
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.figures import counted

BETWEEN_FORMS = "|||"  # as Moses separates fields
CASES = ("exact", "any")
SHOWN_PROBLEMS = 5


class Term(NamedTuple):
    """A term of the source, and the forms that its translation may have."""

    source: str
    targets: tuple[str, ...]
    case: str | None = None  # "exact", "any"; None: exact if a text has a capital letter

    def form_in(self, text: str) -> str | None:
        """Return the first form of the translation in ``text``, between word borders, or None."""
        text = _normal(text)
        return next(
            (form for form in self.targets if _occurs(_normal(form), text, self.case)), None
        )


class MarkedText(NamedTuple):
    """Words of a text and translations of its terms, and the place of each word of the text."""

    words: list[str]
    places: list[int]


class Glossary:
    """Terms, found in a text by the longest match between word borders."""

    def __init__(self, terms: Iterable[Term]) -> None:
        """Of terms with the same source and case, the last one counts."""
        self.terms = {(term.source, term.case): term for term in terms}
        self._exact, self._any_case = dict[str, Term](), dict[str, Term]()
        for term in self.terms.values():
            text = _normal(term.source)
            self._exact.setdefault(text, term)
            if _is_any_case(term.source, term.case):
                self._any_case.setdefault(_lowered(text), term)
        lengths = lengths_by_word(term.source for term in self.terms.values())
        self._lengths = {word: sorted(each, reverse=True) for word, each in lengths.items()}
        self.num_characters = sum(len(source) for source, _ in self.terms)

    def __str__(self) -> str:
        """Return a checksum of the terms, by which a record shows whether they have changed."""
        terms = repr([tuple(term) for term in self.terms.values()])
        return f"sha256 {hashlib.sha256(terms.encode()).hexdigest()[:12]}"

    @classmethod
    def of(cls, terms: Mapping[str, str | Sequence[str]]) -> Glossary:
        """Return a glossary of ``terms``, which have one form or a list of forms each.

        Raises ValueError if a text is blank or no text.
        """
        return cls(_term(source, forms) for source, forms in terms.items())

    @classmethod
    def read(cls, path: Path | str) -> Glossary:
        """Return the terms of a file with the columns source, target forms and case.

        Tabs separate the columns, and ``|||`` the forms; the case is optional. Blank lines and
        those that begin with # are left out. The file may be compressed. Warns if it has no terms.
        Raises UserError if it cannot be read, or, with their numbers, for lines that are wrong.
        """
        path = Path(path)
        text = read_packed_text(path).removeprefix("\ufeff")
        terms, problems = dict[tuple[str, str | None], Term](), []
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip() and not line.startswith("#"):
                try:
                    term = _term_of(line.removesuffix("\r"))
                    if (term.source, term.case) in terms:
                        raise ValueError(f"the term {term.source!r} is given twice")
                    terms[term.source, term.case] = term
                except ValueError as error:
                    problems.append(f"{path}:{number:,}: {error}")
        if problems:
            more = len(problems) - SHOWN_PROBLEMS
            also = f"; and {counted(more, 'more problem')}" if more > 0 else ""
            raise UserError(f"{'; '.join(problems[:SHOWN_PROBLEMS])}{also}.")
        if not terms:
            logs.warning(f"{path} has no terms.")
        return cls(terms.values())

    def with_more(self, others: Glossary) -> Glossary:
        """Return a glossary with the terms of ``others``, too; they replace equal ones."""
        replaced = {term.source for term in others.terms.values()}
        kept = [term for term in self.terms.values() if term.source not in replaced]
        return Glossary([*kept, *others.terms.values()])

    def found_in(self, text: str) -> list[Term]:
        """Return the different terms that occur in ``text``, in the order of their first places.

        Different white space is equal, and so are characters and their compositions (NFC).
        """
        return list(dict.fromkeys(term for _, term in self._matches(_normal(text))))

    def has_term_across(self, text: str, place: int) -> bool:
        """Return whether a term that occurs in ``text`` begins before ``place`` and ends after."""
        before = len(_normal(text[:place]))
        for end, term in self._matches(_normal(text)):
            if end > before:
                return end - len(_normal(term.source)) < before
        return False

    def marked(
        self, text: str, tags: tuple[str, str], form_of: Callable[[Term], str | None]
    ) -> MarkedText:
        """Return ``text`` with ``form_of`` each term behind it, in ``tags``, unless that is None.

        A word that goes on behind a term, such as a comma, goes on behind the second tag.
        """
        text = _normal(text)
        forms = deque((end, form_of(term)) for end, term in self._matches(text))
        marked, start = MarkedText([], []), 0
        for word in text.split(" "):
            marked.places.append(len(marked.words))
            tag, end_of_word = "", start + len(word)
            while forms and forms[0][0] <= end_of_word:
                end, form = forms.popleft()
                if form is not None:
                    marked.words.extend([tag + text[start:end], tags[0], *form.split()])
                    tag, start = tags[1], end
            marked.words.append(tag + text[start:end_of_word])
            start = end_of_word + 1
        return marked

    def _matches(self, text: str) -> Iterator[tuple[int, Term]]:
        """Yield the terms that occur in ``text``, each with the place where it ends."""
        lowered, begin, end = _lowered(text), 0, 0
        for word in _words(text):
            if begin >= end:  # behind the term before
                for length in self._lengths.get(lowered[begin : begin + len(word)], ()):
                    if term := self._term_at(begin, begin + length, text, lowered):
                        end = begin + length
                        yield end, term
                        break
            begin += len(word)

    def _term_at(self, begin: int, end: int, text: str, lowered: str) -> Term | None:
        if end > len(text):
            return None
        term = self._exact.get(text[begin:end]) or self._any_case.get(lowered[begin:end])
        return term if term is not None and is_border(text, end) else None


def lengths_by_word(sources: Iterable[str]) -> dict[str, set[int]]:
    """Return the different lengths of the terms that begin with the same word.

    At each place of a text with this word, a term of each length is looked for.
    """
    lengths: dict[str, set[int]] = defaultdict(set)
    for source in sources:
        text = _lowered(_normal(source))
        lengths[next(_words(text), "")].add(len(text))
    return lengths


def is_in_word(character: str) -> bool:
    """Return whether ``character`` is part of a word that spaces or punctuation separate.

    In some scripts, such as Chinese and Thai, nothing separates words.
    """
    is_letter = character.isalnum() or unicodedata.category(character or " ")[0] == "M"
    return is_letter and not is_of_script_without_spaces(character)


def is_border(text: str, place: int) -> bool:
    """Return whether no word of ``text`` goes on at ``place``."""
    is_inside = 0 < place < len(text)
    return not (is_inside and is_in_word(text[place - 1]) and is_in_word(text[place]))


def _words(text: str) -> Iterator[str]:
    """Yield what is between the borders of ``text``: words, and each other character."""
    begin = 0
    for place in range(1, len(text) + 1):
        if is_border(text, place):
            yield text[begin:place]
            begin = place


def _normal(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())


def _is_any_case(text: str, case: str | None) -> bool:
    return case == "any" or (case is None and text == _lowered(text))


def _lowered(text: str) -> str:
    """Return ``text`` in small letters, of the same length: a few letters would become two."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(each if len(each.lower()) > 1 else each.lower() for each in text)


def _occurs(form: str, text: str, case: str | None) -> bool:
    if _is_any_case(form, case):
        form, text = _lowered(form), _lowered(text)
    place = text.find(form)
    while place >= 0:
        if is_border(text, place) and is_border(text, place + len(form)):
            return True
        place = text.find(form, place + 1)
    return False


def _term_of(line: str) -> Term:
    """Return the term of a line. Raises ValueError if the line is wrong."""
    columns = [column.strip() for column in line.split("\t")]
    if not 2 <= len(columns) <= 3:
        raise ValueError(
            f"a line has 2 or 3 columns with a tab between them (source, target forms, case), "
            f"but this one has {len(columns)}"
        )
    case = columns[2] if len(columns) > 2 and columns[2] else None
    if case is not None and case not in CASES:
        raise ValueError(f"the case is {case!r}, but must be {' or '.join(CASES)}")
    return _term(columns[0], columns[1].split(BETWEEN_FORMS))._replace(case=case)


def _term(source: str, forms: str | Sequence[str]) -> Term:
    """Return a term. Raises ValueError if a text is blank or no text."""
    targets = [forms] if isinstance(forms, str) else list(forms)
    if not all(isinstance(text, str) for text in (source, *targets)):
        raise ValueError("a glossary has a text or a list of texts for each term")
    if not source.strip():
        raise ValueError("the source is blank")
    if not targets or not all(target.strip() for target in targets):
        raise ValueError(f"a target form of {source!r} is blank")
    return Term(source.strip(), tuple(target.strip() for target in targets))
