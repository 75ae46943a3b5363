"""Changes to pairs of training text, as the ``augment`` of a corpus asks for them.

Each returns a new pair. Links between words get the new numbers of their words.
"""

import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from nmt_cli.corpus.text.glossary import Glossary
from nmt_cli.recipe.sections.corpora import Augmentation

MOST_LINKED_TERMS = 3
MOST_MERGED = 3  # pairs that are added to one
# Marks of one kind: full stops, exclamation marks, question marks, commas, colons and semicolons.
END_PUNCTUATION = (
    ".．｡。…।॥۔။።։",
    "!！‼՜",
    "?？؟⁇\u037e՞፧",  # \u037e is the Greek question mark
    ",，､、،၊՝",
    ":：፥",
    ";；؛፤",
)
# Letters of several scripts, arrows, mathematical and other symbols, emoji.
NOISE = (
    *(range(0x41, 0x5B), range(0x61, 0x7B), range(0xC0, 0x180), range(0x391, 0x3A2)),
    *(range(0x3B1, 0x3CA), range(0x410, 0x450), range(0x5D0, 0x5EB), range(0x621, 0x63B)),
    *(range(0x905, 0x93A), range(0xE01, 0xE2F), range(0x10D0, 0x10FB), range(0x3041, 0x3097)),
    *(range(0x30A1, 0x30FB), range(0x4E00, 0x9FA6), range(0xAC00, 0xD7A4)),
    *(range(0x2190, 0x2200), range(0x2200, 0x2300), range(0x25A0, 0x2700)),
    *(range(0x1F300, 0x1F600), range(0x1F600, 0x1F650)),
)
# Chinese characters, kana, and their punctuation: no blank is beside them between sentences.
WITHOUT_BLANK = re.compile(
    "[\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uff9f\U00020000-\U0003ffff]"
)
MOST_NOISE_WORDS = 6
NOISE_WORD = (2, 5)  # fewest and most characters

Words = list[str]
Links = Sequence[tuple[int, int]]


class TextPair(NamedTuple):
    """The words of a sentence pair, and the numbers of those that translate each other."""

    source: Words
    target: Words
    links: Links = ()  # (word of the source, word of the target), from 0


class Augmenting:
    """Changes the pairs of a corpus as its ``augment`` asks, except for words with ``symbols``.

    The source of each pair begins with the ``tag`` of the corpus, if it has one, and keeps it.
    Links count the tag as a word. Threads may share an instance.
    """

    def __init__(
        self,
        config: Augmentation,
        symbols: Collection[str],
        glossary: Glossary | None,
        tag: str | None = None,
        *,
        is_in_pieces: bool = False,
    ) -> None:
        self._is_in_pieces = is_in_pieces
        self._config, self._glossary = config, glossary
        self.probabilities = config.probabilities
        self._tag = [] if tag is None else [tag]
        # Also tags of Marian's models, such as >>deu<<, which no recipe declares.
        self._symbols = re.compile("|".join([r">>[^<>\s]+<<", *map(re.escape, symbols)]))

    def changed(
        self,
        pair: TextPair,
        kinds: Collection[str],
        following: Sequence[TextPair],
        draw: random.Random,
    ) -> TextPair:
        """Return ``pair`` changed in these ``kinds``; ``following`` are the pairs to merge.

        It stays as it is if a side would be empty.
        """
        own, *others = (self._without_tag(each) for each in (pair, *following))
        changed = self._changed(own, kinds, others, draw)
        if not changed.source or not changed.target:
            return pair
        links = [(i + len(self._tag), j) for i, j in changed.links]
        return TextPair([*self._tag, *changed.source], changed.target, links)

    def _without_tag(self, pair: TextPair) -> TextPair:
        links = [(i - len(self._tag), j) for i, j in pair.links]
        return TextPair(pair.source[len(self._tag) :], pair.target, links)

    def _changed(
        self,
        pair: TextPair,
        kinds: Collection[str],
        following: Sequence[TextPair],
        draw: random.Random,
    ) -> TextPair:
        if "noise" in kinds:
            return noise(draw)
        if "merge" in kinds:
            for other in following:
                separator = self._config.merge_separator
                pair = merged(pair, other, separator, are_joined=not self._is_in_pieces)
        if "typos" in kinds:
            source = misspelt(pair.source, self._config.typos_per_word, draw, self._is_symbol)
            pair = pair._replace(source=source)
        if "remove_end_punctuation" in kinds:
            pair = without_end_punctuation(pair)
        if "terms" in kinds:
            tags = self._config.term_tags
            pair = (
                with_linked_terms(pair, tags, draw)
                if self._glossary is None
                else with_terms(pair, self._glossary, tags)
            )
        if "title_case" in kinds:
            pair = self._with_letters(pair, lambda word: word[:1].title() + word[1:])
        if "upper_case" in kinds:
            pair = self._with_letters(pair, str.upper)
        return pair

    def _is_symbol(self, word: str) -> bool:
        return self._symbols.search(word) is not None

    def _with_letters(self, pair: TextPair, change: Callable[[str], str]) -> TextPair:
        source, target = (
            [word if self._is_symbol(word) else change(word) for word in side]
            for side in (pair.source, pair.target)
        )
        return TextPair(source, target, pair.links)


def noise(draw: random.Random) -> TextPair:
    """Return random words, the same on both sides."""
    words = [
        "".join(chr(draw.choice(draw.choice(NOISE))) for _ in range(draw.randint(*NOISE_WORD)))
        for _ in range(draw.randint(1, MOST_NOISE_WORDS))
    ]
    return TextPair(words, words, [(place, place) for place in range(len(words))])


def merged(
    pair: TextPair, other: TextPair, separator: str | None, *, are_joined: bool = True
) -> TextPair:
    """Return both pairs as one, with ``separator`` between them if there is one.

    Without it, Chinese and Japanese sentences ``are_joined`` to one word, so without a blank.
    """
    sides, offsets = list[Words](), list[int]()
    for first, second in zip(pair[:2], other[:2], strict=True):
        if separator is None and are_joined and _has_no_blank_between(first, second):
            sides.append([*first[:-1], first[-1] + second[0], *second[1:]])
            offsets.append(len(first) - 1)
        else:
            between = [separator] if separator is not None else []
            sides.append([*first, *between, *second])
            offsets.append(len(first) + len(between))
    links = [(i + offsets[0], j + offsets[1]) for i, j in other.links]
    source, target = sides
    return TextPair(source, target, [*pair.links, *links])


def _has_no_blank_between(first: Words, second: Words) -> bool:
    border = first[-1][-1] + second[0][0] if first and second else ""
    return WITHOUT_BLANK.search(border) is not None


def misspelt(
    words: Words, rate: float, draw: random.Random, is_kept: Callable[[str], bool]
) -> Words:
    """Return ``words`` with a typing error in some of them, and in one at least if possible.

    Words of less than two letters, and those with digits or symbols, stay as they are.
    """
    possible = [
        place
        for place, word in enumerate(words)
        if sum(map(str.isalpha, word)) > 1 and not any(map(str.isdigit, word)) and not is_kept(word)
    ]
    if not possible:
        return words
    chosen = [place for place in possible if draw.random() < rate] or [draw.choice(possible)]
    letters = [letter for word in words for letter in word if letter.isalpha()]
    changed = list(words)
    for place in chosen:
        changed[place] = _misspelt_word(words[place], letters, draw)
    return changed


def _misspelt_word(word: str, letters: Sequence[str], draw: random.Random) -> str:
    """Return ``word`` with two letters swapped, or one left out, replaced or inserted.

    New letters are some of ``letters``, those of the sentence. An error that would change nothing
    is replaced by an inserted letter.
    """
    kind, new = draw.choice(("swap", "leave out", "replace", "insert")), draw.choice(letters)
    place = draw.choice([place for place, letter in enumerate(word) if letter.isalpha()])
    before, letter, after = word[:place], word[place], word[place + 1 :]
    if kind == "swap" and after[:1].isalpha() and after[0] != letter:
        return f"{before}{after[0]}{letter}{after[1:]}"
    if kind == "leave out":
        return before + after
    if kind == "replace" and new != letter:
        return before + new + after
    return before + letter + new + after


def without_end_punctuation(pair: TextPair) -> TextPair:
    """Return ``pair`` without punctuation at the end, if both sides end with the same kind."""
    if not pair.source or not pair.target:
        return pair
    for marks in END_PUNCTUATION:
        if pair.source[-1][-1] in marks and pair.target[-1][-1] in marks:
            source, target = (_without_end(side, marks) for side in (pair.source, pair.target))
            links = [(i, j) for i, j in pair.links if i < len(source) and j < len(target)]
            return TextPair(source, target, links)
    return pair


def _without_end(words: Words, marks: str) -> Words:
    last = words[-1].rstrip(marks)
    return [*words[:-1], last] if last else words[:-1]


def with_terms(pair: TextPair, glossary: Glossary, tags: tuple[str, str]) -> TextPair:
    """Return ``pair`` with translations behind the terms of the source, if the target has them."""
    target = " ".join(pair.target)
    marked = glossary.marked(" ".join(pair.source), tags, lambda term: term.form_in(target))
    links = [(marked.places[i], j) for i, j in pair.links]
    return TextPair(marked.words, pair.target, links)


def with_linked_terms(pair: TextPair, tags: tuple[str, str], draw: random.Random) -> TextPair:
    """Return ``pair`` with translations behind some words of the source, as its links have them.

    They are words of letters alone that are linked to one word, which is linked to no other.
    """
    of_source, of_target = Counter(i for i, _ in pair.links), Counter(j for _, j in pair.links)
    possible = [
        (i, j)
        for i, j in pair.links
        if of_source[i] == of_target[j] == 1 and f"{pair.source[i]}{pair.target[j]}".isalpha()
    ]
    number = min(draw.randint(1, MOST_LINKED_TERMS), len(possible))
    chosen, words, places = dict(draw.sample(possible, number)), list[str](), list[int]()
    for place, word in enumerate(pair.source):
        places.append(len(words))
        words.append(word)
        if place in chosen:
            words += [tags[0], pair.target[chosen[place]], tags[1]]
    return TextPair(words, pair.target, [(places[i], j) for i, j in pair.links])
