"""Noun phrases, times and places: random, but always the same German for the same English."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import english
import german
import nouns
import words
from chance import Chance
from german import ACCUSATIVE, DATIVE, GENITIVE, PLURAL, Determiner, contract
from lexicon import Adjective, Noun, adjectives_of, compounds_of, nouns_of, pairs

THE = Determiner("the", "the", "d", "der")
A = Determiner("a", "", "ein", "ein")
NO_ARTICLE = Determiner("", "", "", "strong")
THIS = Determiner("this", "these", "dies", "dieser")
EVERY = Determiner("every", "", "jed", "dieser")
WHICH = Determiner("which", "which", "welch", "dieser")
# Under an English "not": not ... a, not ... any.
NOT_A = Determiner("a", "any", "kein", "ein")
NOT_ANY = Determiner("any", "any", "kein", "ein")
MANY = Determiner("", "many", "viel", "viele")
SOME = Determiner("", "some", "einig", "viele")
A_FEW = Determiner("", "a few", "ein paar", "strong")
ALL = Determiner("", "all", "all", "dieser")
BOTH = Determiner("", "both", "beid", "dieser")
HOW_MANY = Determiner("", "how many", "wie viel", "viele")
POSSESSIVES = {
    "ich": Determiner("my", "my", "mein", "ein"),
    "du": Determiner("your", "your", "dein", "ein"),
    "er": Determiner("his", "his", "sein", "ein"),
    "sie": Determiner("her", "her", "ihr", "ein"),
    "wir": Determiner("our", "our", "unser", "ein"),
    "they": Determiner("their", "their", "ihr", "ein"),
}
OWNERS = tuple(POSSESSIVES.values())
INDEFINITE = (A, NO_ARTICLE, NOT_A, NOT_ANY, MANY, SOME, A_FEW, HOW_MANY)


@dataclass(frozen=True, eq=False)
class NounPhrase:
    """Words for somebody or something in both languages, with their person and gender."""

    english: str
    english_object: str
    german: Callable[[int], str]  # from a case
    person: str  # one of german.PERSONS
    gender: str  # m f n, or p in the plural
    standing: str = "definite"  # or indefinite, or pronoun
    noun: Noun | None = None

    @property
    def is_plural(self) -> bool:
        """Whether it agrees with a plural verb."""
        return self.person in ("wir", "sie")


def fixed(forms: str) -> Callable[[int], str]:
    """The four cases, separated by spaces; ``_`` is a space within a case."""
    return tuple(form.replace("_", " ") for form in forms.split()).__getitem__


PRONOUNS = {
    "I": NounPhrase("I", "me", fixed("ich mich mir meiner"), "ich", "m", "pronoun"),
    "you": NounPhrase("you", "you", fixed("du dich dir deiner"), "du", "m", "pronoun"),
    "he": NounPhrase("he", "him", fixed("er ihn ihm seiner"), "er", "m", "pronoun"),
    "she": NounPhrase("she", "her", fixed("sie sie ihr ihrer"), "er", "f", "pronoun"),
    "we": NounPhrase("we", "us", fixed("wir uns uns unser"), "wir", "p", "pronoun"),
    "they": NounPhrase("they", "them", fixed("sie sie ihnen ihrer"), "sie", "p", "pronoun"),
}
IT = {
    "m": NounPhrase("it", "it", fixed("er ihn ihm seiner"), "er", "m", "pronoun"),
    "f": NounPhrase("it", "it", fixed("sie sie ihr ihrer"), "er", "f", "pronoun"),
    "n": NounPhrase("it", "it", fixed("es es ihm seiner"), "er", "n", "pronoun"),
    "p": PRONOUNS["they"],
}
RELATIVE = {
    "m": "der den dem dessen",
    "f": "die die der deren",
    "n": "das das dem dessen",
    "p": "die die denen deren",
}
NAMES = tuple((name, "f") for name in words.FEMALE_NAMES.split()) + tuple(
    (name, "m") for name in words.MALE_NAMES.split()
)


OWN_PEOPLE, OWN_ANIMALS = nouns.OWN_PEOPLE.split(), nouns.OWN_ANIMALS.split()
UNIQUE, IN_PAIRS, HOSTS = nouns.UNIQUE.split(), nouns.IN_PAIRS.split(), nouns.HOSTS


def can_be_owned(noun: Noun) -> bool:
    """Whether the noun makes sense after my."""
    if noun.sort == "person":
        return noun.english in OWN_PEOPLE
    if noun.sort == "animal":
        return noun.english in OWN_ANIMALS
    return noun.sort not in ("building", "landscape", "transport", "weather", "part", "span")


def decline(parts: tuple[Determiner, str, Noun, str, str], case: int) -> str:
    """Determiner, adjective and noun in a case; ``parts`` end with the gender and a tail."""
    determiner, adjective, noun, gender, tail = parts
    article = determiner.form(case, gender)
    found = f"{article} " if article else ""
    if adjective:
        found += f"{adjective}{determiner.adjective_ending(case, gender)} "
    return found + noun.german.form(case, gender) + tail


@dataclass(frozen=True, eq=False)
class Attribute:
    """An adjective in a degree, as it stands before a noun."""

    english: str
    german: str  # without its ending


NO_ATTRIBUTE = Attribute("", "")


def attribute(adjective: Adjective, degree: int = 0) -> Attribute:
    """The adjective before a noun; degrees are 0, 1 (bigger) and 2 (biggest)."""
    if degree == 0:
        return Attribute(adjective.english, german.adjective_stem(adjective.german.positive))
    forms = (adjective.german.comparative, adjective.german.superlative)
    return Attribute(english.compare(adjective.english)[degree - 1], forms[degree - 1])


def noun_phrase(
    noun: Noun,
    determiner: Determiner,
    plural: bool = False,
    adjective: Attribute = NO_ATTRIBUTE,
    tail: tuple[str, str] = ("", ""),
) -> NounPhrase:
    """A determiner, an adjective or none, a noun and what follows it, in agreement."""
    gender = PLURAL if plural else noun.german.gender
    words_ = noun.english_plural if plural else noun.english
    words_ = f"{adjective.english} {words_}" if adjective.english else words_
    article = determiner.english_plural if plural else determiner.english
    text = english.indefinite(words_) if article == "a" else f"{article} {words_}".strip()
    text += tail[0]
    declined = partial(decline, (determiner, adjective.german, noun, gender, tail[1]))
    is_number = determiner.kind == "strong" and not determiner.english
    standing = "indefinite" if determiner in INDEFINITE or is_number else "definite"
    return NounPhrase(text, text, declined, "sie" if plural else "er", gender, standing, noun)


def number_determiner(value: int) -> Determiner:
    """Two and more as a determiner: zwei alte Bücher."""
    return Determiner("", english.number(value), german.number(value), "strong")


class Phrases:
    """Draws phrases with one source of chance."""

    def __init__(self, chance: Chance) -> None:
        self.chance = chance

    def name(self) -> NounPhrase:
        """A first name, or Mr or Mrs and a surname."""
        if self.chance.happens(0.8):
            name, sex = self.chance.rare(NAMES)
            return NounPhrase(name, name, fixed(f"{name} {name} {name} {name}s"), "er", sex)
        name = self.chance.rare(words.SURNAMES.split())
        if self.chance.happens(0.5):
            forms = f"Frau_{name} Frau_{name} Frau_{name} Frau_{name}s"
            return NounPhrase(f"Mrs {name}", f"Mrs {name}", fixed(forms), "er", "f")
        forms = f"Herr_{name} Herrn_{name} Herrn_{name} Herrn_{name}s"
        return NounPhrase(f"Mr {name}", f"Mr {name}", fixed(forms), "er", "m")

    def pronoun(self) -> NounPhrase:
        """I, you, he, she, we or they."""
        return self.chance.pick(tuple(PRONOUNS.values()))

    def person(self, tail: tuple[str, str] = ("", "")) -> NounPhrase:
        """Somebody who is not a pronoun; with a tail, never a name."""
        kind = self.chance.weighted((("name", 0.35), ("relative", 0.25), ("person", 0.4)))
        if kind == "name" and not tail[0]:
            return self.name()
        return self.thing(nouns_of("relative" if kind == "relative" else "person"), tail=tail)

    def subject(self) -> NounPhrase:
        """Somebody who does something."""
        return self.pronoun() if self.chance.happens(0.5) else self.person()

    def noun(self, heads: tuple[Noun, ...]) -> Noun:
        """One of the nouns or of the compounds that they are the heads of."""
        head = self.chance.rare(heads)
        compounds = compounds_of((head,))
        return self.chance.rare(compounds) if compounds and self.chance.happens(0.3) else head

    def attribute(self, noun: Noun, determiner: Determiner) -> Attribute:
        """An adjective that suits the noun, or none."""
        sort = noun.sort
        if not words.SORTS[sort] or not self.chance.happens(0.33):
            return NO_ATTRIBUTE
        degree = 0
        if self.chance.happens(0.2):
            degree = self.degree(noun, determiner)
        options = adjectives_of(sort, degree > 0)
        return attribute(self.chance.rare(options), degree)

    def degree(self, noun: Noun, determiner: Determiner) -> int:
        """A degree that makes sense: a bigger house, the biggest house, but no hungrier boy."""
        if determiner in INDEFINITE:
            return 1 if determiner is A and noun.sort not in ("person", "relative", "animal") else 0
        return 2 if determiner is THE else 0

    def determiner(self, noun: Noun) -> tuple[Determiner, bool]:
        """A determiner for the noun, and whether the noun is in the plural."""
        if noun.is_mass:
            kinds = ((NO_ARTICLE, 0.45), (THE, 0.35), (THIS, 0.2))
            return self.chance.weighted(kinds), False
        owned = noun.sort == "relative"
        if owned or (can_be_owned(noun) and self.chance.happens(0.18)):
            many = noun.english not in UNIQUE and self.chance.happens(0.25)
            return self.chance.pick(OWNERS), many or noun.english in IN_PAIRS
        if noun.english not in IN_PAIRS and self.chance.happens(0.72):
            return self.chance.weighted(((THE, 0.5), (A, 0.38), (THIS, 0.12))), False
        plain: tuple[tuple[Determiner, float], ...]
        plain = ((THE, 0.3), (A, 0.25), (THIS, 0.07), (MANY, 0.06), (SOME, 0.08), (A_FEW, 0.07))
        if noun.sort == "person":
            plain = ((THE, 0.5), (SOME, 0.1), (MANY, 0.06), (A_FEW, 0.07))
        kinds = (*plain, (ALL, 0.04), (BOTH, 0.03), (number_determiner(self.small(noun)), 0.1))
        return self.chance.weighted(kinds), True

    def small(self, noun: Noun) -> int:
        """Two to twelve, or now and then up to thirty-nine things."""
        few = noun.sort == "person" or self.chance.happens(0.7)
        return 2 + self.chance.below(11 if few else 38)

    def thing(self, heads: tuple[Noun, ...], tail: tuple[str, str] = ("", "")) -> NounPhrase:
        """A phrase around one of the nouns."""
        noun = self.noun(heads)
        if tail[0]:
            determiner, plural = self.chance.weighted(((THE, 0.7), (A, 0.3))), False
        elif can_be_owned(noun) and noun.sort != "relative" and self.chance.happens(0.08):
            return self.owned(noun)
        else:
            determiner, plural = self.determiner(noun)
        adjective = self.attribute(noun, SOME if plural and determiner is A else determiner)
        return noun_phrase(noun, determiner, plural, adjective, tail)

    def owned(self, noun: Noun, sort: str = "person relative") -> NounPhrase:
        """The thing of somebody: Annas Auto, das Auto des Lehrers."""
        adjective = self.attribute(noun, THE)
        if self.chance.happens(0.4):
            owner = self.chance.rare(NAMES)[0]
            of_name = Determiner(f"{owner}'s", f"{owner}'s", f"{owner}s", "strong")
            return noun_phrase(noun, of_name, False, adjective)
        owner_noun = self.chance.rare(nouns_of(sort))
        by = self.chance.pick(OWNERS) if owner_noun.sort == "relative" else THE
        owner_phrase = noun_phrase(owner_noun, by)
        of_owner = Determiner(english.possessive(owner_phrase.english), "", "d", "der")
        return noun_phrase(
            noun, of_owner, False, adjective, ("", " " + owner_phrase.german(GENITIVE))
        )

    def definite(self, heads: tuple[Noun, ...], plural: bool = False) -> NounPhrase:
        """A known thing: the, this or somebody's."""
        noun = self.noun(heads)
        determiner = self.chance.weighted(
            ((THE, 0.65), (self.chance.pick(OWNERS), 0.25), (THIS, 0.1))
        )
        if noun.sort == "relative":
            determiner = self.chance.pick(OWNERS)
        elif determiner in OWNERS and not can_be_owned(noun):
            determiner = THE
        plural = plural or noun.english in IN_PAIRS
        return noun_phrase(noun, determiner, plural, self.attribute(noun, determiner))

    def negated(self, heads: tuple[Noun, ...]) -> NounPhrase:
        """A negated thing: kein Auto, keine Äpfel; the English "not" stands elsewhere."""
        noun = self.noun(heads)
        plural = noun.english in IN_PAIRS or (not noun.is_mass and self.chance.happens(0.3))
        determiner = NOT_ANY if noun.is_mass else NOT_A
        return noun_phrase(noun, determiner, plural, self.attribute(noun, determiner))


def prepositional(preposition: tuple[str, str], case: int, phrase: NounPhrase) -> tuple[str, str]:
    """A preposition of both languages before a noun phrase: (in the garden, im Garten)."""
    words_ = f"{preposition[1]} {phrase.german(case)}"
    contracts = phrase.english.startswith("the ")
    return f"{preposition[0]} {phrase.english_object}", contract(words_) if contracts else words_


# The nouns behind the place letters of verbs.py.
WHERE = {
    "h": "room",
    "b": "building",
    "o": "landscape",
    "e": "room:kitchen room:dining_room room:garden building:restaurant building:café",
    "s": "landscape:park building:stadium building:school room:garden landscape:beach",
    "l": "room:flat building:house landscape:village landscape:town",
    "m": "building:theatre building:church building:school building:restaurant building:castle",
}
# Beside the noun: in the dative for a place, in the accusative for a goal.
BESIDE = (("next to", "neben"), ("behind", "hinter"), ("in front of", "vor"))
ON, AT, IN = ("on", "auf"), ("at", "an"), ("in", "in")
ON_TOP = ("mountain", "island", "bridge", "street", "square", "village street", "town square")
ALONGSIDE = ("lake", "river", "beach", "station", "airport")


class Places(Phrases):
    """Draws places, goals and times."""

    def place(self, letters: str) -> tuple[str, str]:
        """Somewhere, by one of the letters of verbs.py."""
        letter = self.chance.pick(letters)
        if letter == "c":
            name, german_name = self.town()
            return f"in {name}", f"in {german_name}"
        phrase_noun = self.noun(nouns_of(WHERE[letter]))
        determiner = THE if letter != "h" or self.chance.happens(0.7) else self.chance.pick(OWNERS)
        with_adjective = self.chance.happens(0.4)
        adjective = self.attribute(phrase_noun, determiner) if with_adjective else NO_ATTRIBUTE
        phrase = noun_phrase(phrase_noun, determiner, False, adjective)
        if letter == "b" and self.chance.happens(0.35):
            return self.beside(phrase)
        return prepositional(own_preposition(phrase_noun), DATIVE, phrase)

    def town(self) -> tuple[str, str]:
        """A city, or now and then a country."""
        table = words.CITIES if self.chance.happens(0.7) else words.COUNTRIES
        return self.chance.rare(pairs(table))

    def beside(self, phrase: NounPhrase) -> tuple[str, str]:
        """Next to, behind, near, opposite something."""
        kind = self.chance.below(5)
        if kind < 3:
            return prepositional(BESIDE[kind], DATIVE, phrase)
        if kind == 3:
            return prepositional(("near", "in der Nähe"), GENITIVE, phrase)
        return prepositional(("opposite", "gegenüber"), DATIVE, phrase)

    def goal(self, letters: str) -> tuple[str, str]:
        """Where somebody goes: home, to the station, into the kitchen, to Berlin."""
        letter = self.chance.pick(letters)
        if letter == "C":
            name, german_name = self.town()
            return f"to {name}", f"nach {german_name}"
        if self.chance.happens(0.1):
            return "home", "nach Hause"
        if self.chance.happens(0.2):
            return prepositional(("to", "zu"), DATIVE, self.definite(nouns_of(HOSTS)))
        if self.chance.happens(0.3):
            return prepositional(
                ("into", "in"), ACCUSATIVE, self.definite(nouns_of("room building"))
            )
        return prepositional(("to", "zu"), DATIVE, self.definite(nouns_of("building landscape")))

    def spot(self, case: int) -> tuple[str, str]:
        """On, under or beside a piece of furniture: dative where it is, accusative where to."""
        noun = self.noun(nouns_of("furniture"))
        determiner = THE if self.chance.happens(0.8) else self.chance.pick(OWNERS)
        adjective = self.attribute(noun, determiner) if self.chance.happens(0.5) else NO_ATTRIBUTE
        options = (
            BESIDE if noun.english.endswith("lamp") else (ON, ON, ON, ("under", "unter"), *BESIDE)
        )
        phrase = noun_phrase(noun, determiner, False, adjective)
        return prepositional(self.chance.pick(options), case, phrase)


def own_preposition(noun: Noun) -> tuple[str, str]:
    """The preposition for being at a place: in, on (Insel) or at (Bahnhof)."""
    if noun.english in ON_TOP:
        return ON
    return AT if noun.english in ALONGSIDE else IN
