"""Sentences of everyday life with idioms of their own: prices, ages, trains, comparisons."""

from dataclasses import replace

import english
import german
import verbs
import words
from clauses import (
    FUTURE,
    PAST,
    PRESENT,
    Clause,
    Piece,
    Role,
    object_piece,
)
from english import EnglishVerb
from german import ACCUSATIVE, DATIVE, NOMINATIVE, GermanVerb
from lexicon import Noun, Verb, adjectives_of, nouns_of, pairs, verb_table
from phrases import (
    IN_PAIRS,
    OWNERS,
    THE,
    THIS,
    A,
    NounPhrase,
    can_be_owned,
    noun_phrase,
    number_determiner,
    prepositional,
)
from scenes import NOT
from sentences import BE, HAVE, Pair, Sentences, plain_pair, question_pair

LIKE = Verb(EnglishVerb("like", "liked", "liked"), GermanVerb("mögen", participle="gemocht"))
BELONG = Verb(
    EnglishVerb("belong", "belonged", "belonged", "to"), GermanVerb("gehören", participle="gehört")
)
COST = Verb(EnglishVerb("cost", "cost", "cost"), GermanVerb("kosten", participle="gekostet"))
HURT = Verb(EnglishVerb("hurt", "hurt", "hurt"), GermanVerb("tun", "weh", participle="wehgetan"))
LEAVE = Verb(
    EnglishVerb("leave", "left", "left"), GermanVerb("fahren", "ab", "fährt", "abgefahren", "sein")
)
ARRIVE = Verb(
    EnglishVerb("arrive", "arrived", "arrived"),
    GermanVerb("kommen", "an", "", "angekommen", "sein"),
)
HAPPEN = Verb(
    EnglishVerb("take", "took", "taken", "place"),
    GermanVerb("finden", "statt", "", "stattgefunden"),
)
BEGIN = Verb(
    EnglishVerb("begin", "began", "begun"), GermanVerb("fangen", "an", "fängt", "angefangen")
)
BECOME = Verb(
    EnglishVerb("become", "became", "become"), GermanVerb("werden", "", "", "geworden", "sein")
)
GOING = (LEAVE, ARRIVE)
TAKING_PLACE = (HAPPEN, BEGIN)
PETS = "animal:dog animal:cat animal:horse animal:bird animal:rabbit animal:donkey animal:goat"
CITY_PAIRS = pairs(words.CITIES)
THINGS = "vehicle furniture clothes device document instrument tool toy picture goods"
MEASURES = (
    ("landscape:mountain", "metres high", "Meter hoch"),
    ("landscape:bridge landscape:street landscape:beach", "metres long", "Meter lang"),
    ("landscape:river landscape:street opening:gate", "metres wide", "Meter breit"),
    ("plant:tree building:church building:castle", "metres tall", "Meter hoch"),
)


class Everyday(Sentences):
    """Draws the sentences of daily life."""

    # --- being and having ----------------------------------------------------------------------

    def quality(self) -> Pair:
        """The soup was very hot. Is Anna tired?"""
        sort = self.chance.pick([key for key, codes in words.SORTS.items() if codes])
        subject = self.someone() if sort in ("person", "relative") else self.definite_or_part(sort)
        noun_sort = "person" if sort == "relative" else sort
        adjective = self.chance.rare(adjectives_of(noun_sort))
        text, translation = adjective.english, adjective.german.positive
        negated = self.chance.happens(0.15)
        if "X" not in adjective.codes and self.chance.happens(0.4):
            degree = self.chance.rare(pairs(words.DEGREES)[: 2 if negated else None])
            text, translation = f"{degree[0]} {text}", f"{degree[1]} {translation}"
        tense = self.chance.pick((PRESENT, PAST))
        pieces = (Piece(text, translation, Role.GOAL), *((NOT,) if negated else ()))
        clause = Clause(subject, BE, pieces, tense, negated=negated)
        return question_pair(clause) if self.chance.happens(0.15) else plain_pair(clause)

    def definite_or_part(self, sort: str) -> NounPhrase:
        """A known thing, often in the plural."""
        heads = nouns_of(sort)
        return self.plain(heads, not heads[0].is_mass and self.chance.happens(0.25))

    def plain(self, heads: tuple[Noun, ...], plural: bool = False) -> NounPhrase:
        """A known thing without an adjective, because the sentence adds one."""
        noun = self.noun(heads)
        mine = can_be_owned(noun) and self.chance.happens(0.3)
        determiner = self.chance.pick(OWNERS) if mine else self.chance.pick((THE, THE, THIS))
        return noun_phrase(noun, determiner, plural or noun.english in IN_PAIRS)

    def comparison(self) -> Pair:
        """The red car is faster than the bus; she is not as old as my sister."""
        sort = self.chance.pick(("person", "animal", "vehicle", "building", "clothes", "event",
                                 "landscape", "furniture", "document", "fruit"))  # fmt: skip
        pick = self.someone if sort == "person" else lambda: self.plain(nouns_of(sort))
        first, second = pick(), pick()
        adjective = self.chance.rare(adjectives_of(sort, True))
        if self.chance.happens(0.6):
            more = english.compare(adjective.english)[0]
            text, translation = f"{more} than", f"{adjective.german.comparative} als"
            negated = False
        else:
            text, translation = f"as {adjective.english} as", f"so {adjective.german.positive} wie"
            negated = self.chance.happens(0.5)
        text, translation = f"{text} {second.english}", f"{translation} {second.german(NOMINATIVE)}"
        pieces = (Piece(text, translation, Role.GOAL), *((NOT,) if negated else ()))
        return plain_pair(
            Clause(first, BE, pieces, self.chance.pick((PRESENT, PAST)), negated=negated)
        )

    def someone(self) -> NounPhrase:
        """A single person, by name or kinship."""
        return self.chance.pick((self.name, self.relation, self.pronoun))()

    def profession(self) -> Pair:
        """She became a doctor: sie ist Ärztin geworden."""
        subject = self.name() if self.chance.happens(0.7) else self.relation()
        word, both = self.chance.rare(pairs(words.PROFESSIONS))
        translation = both.split()[0 if subject.gender == "m" else 1]
        piece = Piece(english.indefinite(word), translation, Role.GOAL)
        kind = self.chance.below(3)
        if kind == 0:
            return plain_pair(Clause(subject, BE, (piece,), self.chance.pick((PRESENT, PAST))))
        clause = Clause(subject, BECOME, (piece,), self.chance.pick((PAST, FUTURE)))
        if kind == 1 and self.chance.happens(0.5):
            clause = self.modal(replace(clause, tense=PRESENT))
        elif self.chance.happens(0.5):
            clause = clause.plus(Piece(*self.times.time(clause.tense), Role.TIME))
        return plain_pair(clause)

    def relation(self) -> NounPhrase:
        """One relative of somebody."""
        noun = self.chance.rare(nouns_of("relative"))
        return noun_phrase(noun, self.chance.pick(OWNERS))

    def age(self) -> Pair:
        """My uncle is forty-three years old. How old is he?"""
        subject = self.name() if self.chance.happens(0.5) else self.relation()
        if self.chance.happens(0.15):
            return f"how old is {subject.english} ?", f"wie alt ist {subject.german(NOMINATIVE)} ?"
        value = 2 + self.chance.below(97)
        piece = Piece(
            f"{english.number(value)} years old", f"{german.number(value)} Jahre alt", Role.GOAL
        )
        return plain_pair(Clause(subject, BE, (piece,), self.chance.pick((PRESENT, PRESENT, PAST))))

    def having(self) -> Pair:
        """They have a dog; he did not have any time."""
        asked = self.chance.happens(0.2)
        subject = self.questioned() if asked else self.subject()
        heads = nouns_of(f"{THINGS} {PETS} topic relative room:garden room:flat room:office")
        tense, negated = self.chance.pick((PRESENT, PRESENT, PAST)), self.chance.happens(0.35)
        phrase = self.negated(heads) if negated else self.unowned(heads)
        clause = Clause(subject, HAVE, (object_piece(phrase),), tense, negated=negated)
        return question_pair(clause) if asked else plain_pair(clause)

    def unowned(self, heads: tuple[Noun, ...]) -> NounPhrase:
        """A, some, two of something."""
        while True:
            noun = self.noun(heads)
            determiner, plural = self.determiner(noun)
            if noun.sort == "relative":
                plural = self.chance.happens(0.5)
                determiner = number_determiner(2 + self.chance.below(5)) if plural else A
            phrase = noun_phrase(noun, determiner, plural, self.attribute(noun, determiner))
            if phrase.standing == "indefinite":
                return phrase

    def liked(self) -> Pair:
        """I like the red coat; did you like the concert?"""
        phrase = self.definite(nouns_of(THINGS + " person animal event dish pastry room building"))
        negated = self.chance.happens(0.2)
        pieces = (object_piece(phrase), *((NOT,) if negated else ()))
        asked = self.chance.happens(0.2)
        subject = self.questioned() if asked else self.subject()
        tense = self.chance.pick((PRESENT, PAST))
        clause = Clause(subject, LIKE, pieces, tense, negated=negated)
        return question_pair(clause) if asked else plain_pair(clause)

    def belonging(self) -> Pair:
        """The car belongs to my uncle."""
        owner = (
            self.name() if self.chance.happens(0.3) else self.definite(nouns_of("person relative"))
        )
        piece = Piece(owner.english_object, owner.german(DATIVE), Role.DATIVE)
        negated = self.chance.happens(0.2)
        subject = self.definite_or_part(self.chance.pick(THINGS.split()))
        pieces = (piece, *((NOT,) if negated else ()))
        clause = Clause(subject, BELONG, pieces, self.chance.pick((PRESENT, PAST)), negated=negated)
        return question_pair(clause) if self.chance.happens(0.15) else plain_pair(clause)

    def existence(self) -> Pair:
        """There are two trees in the garden: es gibt im Garten zwei Bäume."""
        indoors = self.chance.happens(0.6)
        heads = nouns_of(
            "furniture device tool picture" if indoors else "animal plant furniture:bench"
        )
        phrase, place = self.unowned(heads), self.place("h" if indoors else "o")
        past, front = self.chance.happens(0.3), self.chance.happens(0.4)
        be = BE.english.simple_past if past else BE.english.present
        there = f"there {be('sie' if phrase.is_plural else 'er')} {phrase.english}"
        gives, given = "gab" if past else "gibt", phrase.german(ACCUSATIVE)
        if front:
            return f"{place[0]}, {there}", f"{place[1]} {gives} es {given}"
        return f"{there} {place[0]}", f"es {gives} {place[1]} {given}"

    def posture(self) -> Pair:
        """The book lies on the table; Anna sat in front of the museum."""
        verb = self.chance.rare(verb_table(verbs.POSTURE))
        tense = self.chance.pick((PRESENT, PAST))
        if verb.english.base == "live":
            clause = Clause(self.subject(), verb, (Piece(*self.place("lcc"), Role.PLACE),), tense)
        else:
            subject = self.thing(verb.objects)
            if subject.gender != "p" and verb.english.base == "sit" and self.chance.happens(0.6):
                subject = self.subject()
            clause = Clause(subject, verb, (self.where(verb, DATIVE),), tense)
        return question_pair(clause) if self.chance.happens(0.12) else self.as_statement(clause)

    def pain(self) -> Pair:
        """My back hurts: mein Rücken tut weh."""
        noun = self.chance.rare(nouns_of("body"))
        plural = noun.english not in ("back", "head", "neck") and self.chance.happens(0.4)
        determiner = self.chance.pick(OWNERS[:4])
        clause = Clause(noun_phrase(noun, determiner, plural), HURT)
        if self.chance.happens(0.5):
            clause = clause.plus(Piece(*self.chance.rare(pairs(words.FREQUENCIES)), Role.FREQUENCY))
        elif self.chance.happens(0.6):
            clause = clause.plus(Piece(*self.times.habitual(), Role.TIME))
        return question_pair(clause) if self.chance.happens(0.3) else self.as_statement(clause)

    # --- numbers -------------------------------------------------------------------------------

    def price(self) -> Pair:
        """The bicycle costs four hundred and twenty euros."""
        sort = self.chance.pick(
            ("vehicle", "clothes", "furniture", "device", "document", "instrument")
        )
        subject = self.definite(nouns_of(sort))
        if self.chance.happens(0.15):
            return (
                f"how much does {subject.english} cost ?",
                f"wie viel kostet {subject.german(NOMINATIVE)} ?",
            )
        most = {"clothes": 400, "document": 90, "device": 2500, "furniture": 2900}.get(sort, 9986)
        value = 12 + self.chance.below(most)
        piece = self.amount(value, "euros", "Euro")
        return plain_pair(Clause(subject, COST, (piece,), self.chance.pick((PRESENT, FUTURE))))

    def amount(self, value: int, unit: str, german_unit: str) -> Piece:
        """A number of a unit; one and its like are avoided, for German would inflect them."""
        value += value % 100 == 1
        return Piece(
            f"{english.number(value)} {unit}", f"{german.number(value)} {german_unit}", Role.GOAL
        )

    def count(self) -> Pair:
        """The village has three thousand and five inhabitants."""
        kind = self.chance.below(4)
        if kind == 0:
            subject = self.definite(nouns_of("landscape:village landscape:town landscape:island"))
            piece = self.amount(200 + self.chance.below(9700), "inhabitants", "Einwohner")
            return plain_pair(Clause(subject, HAVE, (piece,), self.chance.pick((PRESENT, PAST))))
        if kind == 1:
            subject = self.definite(nouns_of("document:book document:dictionary writing:novel"))
            piece = self.amount(12 + self.chance.below(980), "pages", "Seiten")
            return plain_pair(Clause(subject, HAVE, (piece,)))
        if kind == 2:
            heads, unit, german_unit = self.chance.pick(MEASURES)
            most = 4500 if "mountain" in heads else 120
            piece = self.amount(2 + self.chance.below(most), unit, german_unit)
            return plain_pair(Clause(self.definite(nouns_of(heads)), BE, (piece,)))
        heads = nouns_of("building landscape:village landscape:beach landscape:lake landscape:town")
        start, end = (noun_phrase(self.noun(heads), THE) for _ in range(2))
        unit = self.chance.pick((("kilometres", "Kilometer", 90), ("metres", "Meter", 950)))
        piece = self.amount(2 + self.chance.below(unit[2]), *unit[:2])
        start_pair = prepositional(("from", "von"), DATIVE, start)
        end_pair = prepositional(("to", "zu"), DATIVE, end)
        text = f"it is {piece.english} {start_pair[0]} {end_pair[0]}"
        return text, f"{start_pair[1]} {end_pair[1]} sind es {piece.german}"

    def hour(self) -> Pair:
        """It is half past seven: es ist halb acht."""
        now, german_now = self.times.clock()
        if self.chance.happens(0.5):
            return f"it is already {now[3:]}", f"es ist schon {german_now[3:]}"
        return f"it is {now[3:]}", f"es ist {german_now[3:]}"

    # --- what happens to things ----------------------------------------------------------------

    def timetable(self) -> Pair:
        """The train to Hamburg leaves at a quarter to nine."""
        noun = self.chance.rare(nouns_of("transport:train vehicle:bus"))
        city, verb = self.chance.rare(CITY_PAIRS), self.chance.pick(GOING)
        tail = (f" to {city[0]}", f" nach {city[1]}")
        if verb is ARRIVE or self.chance.happens(0.3):
            tail = (f" from {city[0]}", f" aus {city[1]}")
        clause = Clause(
            noun_phrase(noun, THE, tail=tail), verb, (), self.chance.pick((PRESENT, PAST, FUTURE))
        )
        when = (
            self.times.clock()
            if self.chance.happens(0.6)
            else self.times.with_clock(self.times.weekday(), 0.8)
        )
        if self.chance.happens(0.15):
            return question_pair(clause, ("when", "wann"))
        return self.as_statement(clause.plus(Piece(*when, Role.TIME)))

    def appointment(self) -> Pair:
        """The meeting takes place on the third of May."""
        verb = self.chance.pick(TAKING_PLACE)
        clause = Clause(
            self.definite(nouns_of("event")), verb, (), self.chance.pick((PAST, FUTURE, PRESENT))
        )
        kind = self.chance.below(3)
        if kind == 0:
            when = self.times.date()
        elif clause.tense == PRESENT:
            when = self.times.clock()
        else:
            when = self.times.with_clock(self.times.weekday(), 0.6)
        clause = clause.plus(Piece(*when, Role.TIME))
        if verb is HAPPEN and self.chance.happens(0.4):
            clause = clause.plus(Piece(*self.place("bbc"), Role.PLACE))
        return self.as_statement(clause)
