"""The tables of nouns.py, verbs.py and words.py as objects, read once."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import english
import nouns
import verbs
import words
from german import (
    ACCUSATIVE,
    DATIVE,
    GermanAdjective,
    GermanNoun,
    GermanVerb,
    adjective_stem,
    regular_participle,
)

GENDERS = {"der": "m", "die": "f", "das": "n"}


@dataclass(frozen=True, eq=False)
class Noun:
    """An English noun and its German one."""

    english: str
    english_plural: str
    german: GermanNoun
    sort: str

    @property
    def is_mass(self) -> bool:
        """Whether it has no plural: bread, rain."""
        return not self.german.plural


@dataclass(frozen=True, eq=False)
class Adjective:
    """An adjective of both languages; ``codes`` are the sorts of nouns it suits."""

    english: str
    german: GermanAdjective
    codes: str


@dataclass(frozen=True, eq=False)
class Verb:
    """A verb of both languages with what it takes."""

    english: english.EnglishVerb
    german: GermanVerb
    objects: tuple[Noun, ...] = ()
    adjuncts: str = ""
    preposition: str = ""
    case: int = ACCUSATIVE


@cache
def pairs(table: str) -> tuple[tuple[str, str], ...]:
    """The ``english: german`` entries of a table."""
    entries = (re.sub(r"\s+", " ", entry).strip() for entry in table.split(";"))
    return tuple((entry.split(": ")[0], entry.split(": ")[1]) for entry in entries if entry)


def _noun(sort: str, key: str, value: str) -> Noun:
    singular, _, irregular = key.partition("/")
    article, _, forms = value.partition(" ")
    german, _, plural = forms.partition(", ")
    german, star, oblique = german.partition("*")
    # The plural of a weak noun is its oblique singular too: den Studenten, die Studenten.
    german_noun = GermanNoun(german, plural, GENDERS[article], (oblique or plural) if star else "")
    if irregular:
        return Noun(singular, irregular, german_noun, sort)
    return Noun(singular, english.plural(singular), german_noun, sort)


def _compound(head: Noun, modifier: str, german_modifier: str, sort: str) -> Noun:
    old = head.german
    german = GermanNoun(old.singular, old.plural, old.gender, old.oblique, german_modifier)
    return Noun(f"{modifier} {head.english}", f"{modifier} {head.english_plural}", german, sort)


def _compounds(simple: dict[str, Noun]) -> Iterator[Noun]:
    for line in re.sub(r",\s*\n\s+", ", ", nouns.COMPOUNDS).strip().splitlines():
        parts = [part.strip() for part in line.split(":")]
        sort = parts[0] if len(parts) == 3 else ""
        for head in parts[-2].split():
            for modifier in parts[-1].split(", "):
                noun = simple[head]
                yield _compound(noun, *modifier.split(), sort or noun.sort)


NOUNS = tuple(
    _noun(sort, key, value) for sort, table in nouns.NOUNS.items() for key, value in pairs(table)
)
BY_ENGLISH = {noun.english: noun for noun in NOUNS}
COMPOUNDS = tuple(_compounds(BY_ENGLISH))


@cache
def nouns_of(classes: str) -> tuple[Noun, ...]:
    """The simple nouns of some classes, as in "person event:party"."""
    found = []
    for wanted in classes.split():
        sort, _, key = wanted.replace("_", " ").partition(":")
        found += [BY_ENGLISH[key]] if key else [noun for noun in NOUNS if noun.sort == sort]
    return tuple(found)


@cache
def compounds_of(heads: tuple[Noun, ...]) -> tuple[Noun, ...]:
    """The compounds that can stand for one of the nouns."""
    wholes = [(noun.sort, noun.german.singular) for noun in heads]
    return tuple(noun for noun in COMPOUNDS if (noun.sort, noun.german.singular) in wholes)


def _adjective(key: str, value: str) -> Adjective:
    parts = value.split()
    comparative = parts[1] if len(parts) == 3 else adjective_stem(parts[0]) + "er"
    return Adjective(key, GermanAdjective(parts[0], comparative), parts[-1])


ADJECTIVES = tuple(_adjective(key, value) for key, value in pairs(words.ADJECTIVES))


@cache
def adjectives_of(sort: str, graded: bool = False) -> tuple[Adjective, ...]:
    """The adjectives that suit a class of nouns; only those with a comparative if ``graded``."""
    codes = words.SORTS[sort]
    suitable = (word for word in ADJECTIVES if any(code in word.codes for code in codes))
    return tuple(word for word in suitable if not (graded and "X" in word.codes))


def english_verb(text: str) -> english.EnglishVerb:
    """The verb of an entry such as ``turn+on`` or ``go~shopping went gone``."""
    head, *forms = text.split()
    base, joint, tail = re.match(r"([^~+]+)([~+]?)(.*)", head).groups()  # type: ignore[union-attr]
    past = forms[0] if forms else english.regular_past(base)
    participle = forms[1] if len(forms) > 1 else past
    return english.EnglishVerb(base, past, participle, re.sub("[~+]", " ", tail), joint == "+")


def german_verb(text: str) -> GermanVerb:
    """The verb of an entry such as ``sich an|ziehen angezogen``; ``!`` asks for sein."""
    reflexive = text.startswith("sich ")
    head, *forms = [word.replace("_", " ") for word in text.removeprefix("sich ").split()]
    prefix, _, infinitive = head.rpartition("|")
    sein = bool(forms) and forms[-1].startswith("!")
    participle = forms[-1].lstrip("!") if forms else regular_participle(prefix, infinitive)
    third = forms[0].removeprefix(prefix) if len(forms) > 1 else ""
    auxiliary = "sein" if sein else "haben"
    return GermanVerb(infinitive, prefix, third, participle, auxiliary, reflexive)


def _verb(line: str) -> Verb:
    forms, objects, adjuncts = _cut(line)
    english_part, german_part = forms.split(" = ")
    governed = re.match(r"(\w+) (acc|dat): (.*)", objects)
    preposition, case = "", ACCUSATIVE
    if governed:
        preposition, objects = governed[1], governed[3]
        case = DATIVE if governed[2] == "dat" else ACCUSATIVE
    return Verb(
        english_verb(english_part),
        german_verb(german_part),
        nouns_of(objects),
        adjuncts,
        preposition,
        case,
    )


def _cut(line: str) -> tuple[str, str, str]:
    # The bar inside auf|stehen has no space before it.
    forms, objects, adjuncts = re.split(r"\s\|", line)
    return forms.strip(), objects.strip(), adjuncts.strip()


@cache
def verb_table(table: str) -> tuple[Verb, ...]:
    """The verbs of a table of verbs.py."""
    lines = re.sub(r"\n {8,}", " ", table).strip().splitlines()
    return tuple(_verb(line) for line in lines)


def game_verbs() -> Iterator[Verb]:
    """Playing football or the piano: the game separates like a prefix (spielt ... Fußball)."""
    sports = [(pair, "sWD") for pair in pairs(verbs.SPORTS)]
    for (game, german), adjuncts in [*sports, *((pair, "hWD") for pair in pairs(verbs.PASTIMES))]:
        played = GermanVerb("spielen", f"{german} ", "", f"{german} gespielt")
        yield Verb(english.EnglishVerb("play", "played", "played", game), played, (), adjuncts)


GAMES = tuple(game_verbs())
