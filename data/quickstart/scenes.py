"""Scenes: a verb with what it takes, then when, where, how and with whom."""

from dataclasses import replace

import verbs
import words
from chance import Chance
from clauses import (
    CONDITIONAL,
    FUTURE,
    MODALS,
    PAST,
    PERFECT,
    PRESENT,
    PROGRESSIVE,
    Clause,
    Piece,
    Role,
    object_piece,
)
from german import ACCUSATIVE, DATIVE, GENITIVE
from lexicon import BY_ENGLISH, GAMES, Noun, Verb, nouns_of, pairs, verb_table
from phrases import PRONOUNS, NounPhrase, Places, prepositional
from times import Times

NOT = Piece("", "nicht", Role.NEGATION)
ALREADY = Piece("already", "schon", Role.STILL)
JUST_NOW = Piece("", "gerade", Role.FREQUENCY)  # English has the form in -ing instead
TRANSPORT = ("train", "bus", "plane", "car")
INVOLUNTARY = verbs.INVOLUNTARY.split()
SPEAKERS = ("ich", "wir")
PLACES = "hbocesml"


class Scenes(Places):
    """Draws clauses about people."""

    def __init__(self, chance: Chance) -> None:
        super().__init__(chance)
        self.times = Times(chance)

    # --- a verb and its objects ---------------------------------------------------------------

    def scene(self, subject: NounPhrase, negated: bool = False) -> Clause:
        """A verb in the present with its objects; under negation nothing that is "some"."""
        kinds = (
            (self.intransitive, 0.24), (self.transitive, 0.35), (self.ditransitive, 0.11),
            (self.dative, 0.06), (self.with_preposition, 0.12), (self.motion, 0.07),
            (self.placing, 0.05),
        )  # fmt: skip
        return self.chance.weighted(kinds)(subject, negated)

    def willing(self, subject: NounPhrase, negated: bool = False) -> Clause:
        """A scene that one can ask for, try or forget."""
        while True:
            clause = self.scene(subject, negated)
            if can_be_willed(clause):
                return clause

    def scene_of(self, subject: NounPhrase, bases: list[str]) -> Clause:
        """A scene whose English verb is one of the given."""
        while True:
            clause = self.scene(subject)
            if clause.verb.english.base in bases and "S" not in clause.verb.adjuncts:
                return clause

    def intransitive(self, subject: NounPhrase, negated: bool) -> Clause:
        """Somebody works, gets up, plays football."""
        table = GAMES if self.chance.happens(0.25) else verb_table(verbs.INTRANSITIVE)
        return Clause(subject, self.chance.rare(table), (NOT,) if negated else (), negated=negated)

    def transitive(self, subject: NounPhrase, negated: bool) -> Clause:
        """Somebody reads a book."""
        verb = self.chance.rare(verb_table(verbs.TRANSITIVE))
        return Clause(subject, verb, self.objects(subject, verb.objects, negated), negated=negated)

    def objects(
        self, subject: NounPhrase, heads: tuple[Noun, ...], negated: bool
    ) -> tuple[Piece, ...]:
        """A direct object, with "nicht" or "kein" under negation."""
        if negated and self.chance.happens(0.4) and heads[0].sort not in ("person", "relative"):
            return (object_piece(self.negated(heads)),)
        if heads[0].sort == "person" and self.chance.happens(0.3):
            phrase = self.other(subject)
        else:
            phrase = self.definite(heads) if negated else self.thing(heads)
        return (object_piece(phrase), NOT) if negated else (object_piece(phrase),)

    def other(self, subject: NounPhrase) -> NounPhrase:
        """A pronoun or name for somebody else than the subject."""
        if self.chance.happens(0.4):
            return self.name()
        pronoun = self.pronoun()
        both_speak = pronoun.person in SPEAKERS and subject.person in SPEAKERS
        if both_speak or pronoun.person == subject.person == "du":
            return PRONOUNS["they"]
        return pronoun

    def receiver(self, subject: NounPhrase) -> NounPhrase:
        """Somebody in the dative."""
        if self.chance.happens(0.45):
            return self.other(subject)
        return self.definite(nouns_of("person relative"))

    def ditransitive(self, subject: NounPhrase, negated: bool) -> Clause:
        """Somebody gives somebody something."""
        verb = self.chance.rare(verb_table(verbs.DITRANSITIVE))
        receiver = self.receiver(subject)
        piece = object_piece(receiver, DATIVE)
        if verb.english.tail.endswith("to"):  # explained the rule to the boy
            tail = verb.english.tail.removesuffix("to").strip()
            verb = replace(verb, english=replace(verb.english, tail=tail))
            piece = Piece(f"to {piece.english}", piece.german, piece.role, late=True)
        phrase = self.definite(verb.objects) if negated else self.thing(verb.objects)
        pieces = (piece, object_piece(phrase), *((NOT,) if negated else ()))
        return Clause(subject, verb, pieces, negated=negated)

    def dative(self, subject: NounPhrase, negated: bool) -> Clause:
        """Somebody helps somebody."""
        verb = self.chance.rare(verb_table(verbs.DATIVE))
        pieces = (object_piece(self.receiver(subject), DATIVE), *((NOT,) if negated else ()))
        return Clause(subject, verb, pieces, negated=negated)

    def with_preposition(self, subject: NounPhrase, negated: bool) -> Clause:
        """Somebody waits for the bus."""
        verb = self.chance.rare(verb_table(verbs.PREPOSITIONAL))
        if verb.objects[0].sort == "person" and self.chance.happens(0.35):
            phrase = self.other(subject)
        else:
            known = negated or verb.objects[0].sort == "person"
            phrase = self.definite(verb.objects) if known else self.thing(verb.objects)
        pair = prepositional(("", verb.preposition), verb.case, phrase)
        # The object comes right behind the English verb, before "quickly".
        pieces = (Piece(pair[0].strip(), "", Role.OBJECT), Piece("", pair[1], Role.GOAL))
        return Clause(subject, verb, (*pieces, *((NOT,) if negated else ())), negated=negated)

    def motion(self, subject: NounPhrase, negated: bool) -> Clause:
        """Somebody goes somewhere."""
        verb = self.chance.rare(verb_table(verbs.MOTION))
        letters = "".join(letter for letter in verb.adjuncts if letter in "BC")
        pieces = [Piece(*self.goal(letters), Role.GOAL)]
        far = pieces[0].german.startswith("nach ") and pieces[0].english != "home"
        if far and verb.english.base in ("travel", "return") and self.chance.happens(0.4):
            vehicle = BY_ENGLISH[self.chance.pick(TRANSPORT)]
            by = (f"by {vehicle.english}", f"mit {_the(vehicle, DATIVE)}")
            pieces.append(Piece(*by, Role.COMPANION))
        return Clause(subject, verb, (*pieces, *((NOT,) if negated else ())), negated=negated)

    def placing(self, subject: NounPhrase, negated: bool) -> Clause:
        """Somebody puts something somewhere."""
        verb = self.chance.rare(verb_table(verbs.PLACING))
        phrase = self.definite(verb.objects) if negated else self.thing(verb.objects)
        pieces = (object_piece(phrase), self.where(verb, ACCUSATIVE), *((NOT,) if negated else ()))
        return Clause(subject, verb, pieces, negated=negated)

    def where(self, verb: Verb, case: int) -> Piece:
        """The place where something lies, stands, hangs, or is put."""
        role = Role.GOAL if case == ACCUSATIVE else Role.PLACE
        if verb.english.base == "hang":
            wall = self.chance.pick(("the wall", "the door"))
            where = "Wand" if wall == "the wall" else "Tür"
            article = "die" if case == ACCUSATIVE else "der"
            if self.chance.happens(0.4):
                phrase = self.definite(nouns_of("furniture"))
                return Piece(*prepositional(("over", "über"), case, phrase), role)
            return Piece(f"on {wall}", f"an {article} {where}", role)
        return Piece(*self.spot(case), role)

    # --- tense and adjuncts ---------------------------------------------------------------------

    def tense(self, clause: Clause) -> Clause:
        """The clause in a tense that English shows and that suits its verb."""
        if "S" in clause.verb.adjuncts:
            kinds: tuple[tuple[str, float], ...] = ((PRESENT, 0.6), (PAST, 0.4))
        elif "D" in clause.verb.adjuncts:
            kinds = (
                (PRESENT, 0.33),
                (PROGRESSIVE, 0.15),
                (PAST, 0.34),
                (FUTURE, 0.1),
                (PERFECT, 0.08),
            )
        else:
            kinds = ((PRESENT, 0.16), (PAST, 0.52), (FUTURE, 0.18), (PERFECT, 0.14))
        return self.in_tense(clause, self.chance.weighted(kinds))

    def in_tense(self, clause: Clause, tense: str) -> Clause:
        """The clause in the tense; "they read" stays present, as nothing marks it as past."""
        verb = clause.verb.english
        if tense == PAST and verb.past == verb.base and clause.subject.person != "er":
            tense = PRESENT
        if tense == PROGRESSIVE and clause.negated:
            tense = PRESENT
        if tense == PERFECT:
            if clause.negated:
                pieces = tuple(piece for piece in clause.pieces if piece is not NOT)
                if len(pieces) == len(clause.pieces):  # kein stands alone
                    return replace(clause, tense=PAST)
                not_yet = (Piece("yet", "", Role.TIME), Piece("", "noch nicht", Role.NEGATION))
                return replace(clause, tense=tense, pieces=(*pieces, *not_yet))
            return replace(clause, tense=tense).plus(ALREADY)
        clause = replace(clause, tense=tense)
        return clause.plus(JUST_NOW) if tense == PROGRESSIVE else clause

    def modal(self, clause: Clause) -> Clause:
        """The clause under a modal verb, in the present or past."""
        modal = self.chance.rare(MODALS)
        past = modal.preterite and self.chance.happens(0.4)
        return replace(clause, modal=modal, tense=PAST if past else PRESENT)

    def modal_in(self, clause: Clause, tense: str) -> Clause:
        """The clause under a modal verb that has the tense."""
        past = tense == PAST
        modal = self.chance.rare([modal for modal in MODALS if modal.preterite or not past])
        return replace(clause, modal=modal, tense=PAST if past else PRESENT)

    def adjuncts(self, clause: Clause, most: int = 2) -> Clause:
        """The clause with up to ``most`` adjuncts that suit its verb and tense."""
        count = max(self.chance.below(most + 1), self.chance.below(most + 1))
        if count and self.chance.happens(0.75) and clause.tense not in (PERFECT, PROGRESSIVE):
            clause, count = self.with_time(clause), count - 1
        places = "".join(letter for letter in clause.verb.adjuncts if letter in PLACES)
        manners = "".join(letter for letter in clause.verb.adjuncts if letter in words.MANNERS)
        if places and count and self.chance.happens(0.6):
            clause, count = clause.plus(Piece(*self.place(places), Role.PLACE)), count - 1
        if "W" in clause.verb.adjuncts and count and self.chance.happens(0.5):
            clause, count = clause.plus(self.companion()), count - 1
        elif manners and count and self.chance.happens(0.6) and manners_fit(clause):
            clause, count = clause.plus(self.manner(manners)), count - 1
        if count and clause.tense == PAST and not clause.negated and self.chance.happens(0.45):
            clause = clause.plus(self.cause())
        return clause

    def with_time(self, clause: Clause) -> Clause:
        """The clause with a time, or with often, always, ... in the present."""
        habit = clause.tense == PRESENT and not clause.modal
        if habit and "S" in clause.verb.adjuncts:
            return clause
        if habit and not clause.negated and self.chance.happens(0.4):
            pair = self.chance.rare(pairs(words.FREQUENCIES))
            return clause.plus(Piece(*pair, Role.FREQUENCY))
        tense = FUTURE if clause.modal and clause.tense == PRESENT else clause.tense
        if tense == CONDITIONAL:
            tense = FUTURE
        return clause.plus(Piece(*self.times.time(tense), Role.TIME))

    def companion(self) -> Piece:
        """With or without somebody."""
        if self.chance.happens(0.2):
            phrase = self.definite(nouns_of("relative"))
            return Piece(*prepositional(("without", "ohne"), ACCUSATIVE, phrase), Role.COMPANION)
        phrase = (
            self.name() if self.chance.happens(0.3) else self.definite(nouns_of("person relative"))
        )
        return Piece(*prepositional(("with", "mit"), DATIVE, phrase), Role.COMPANION)

    def manner(self, letters: str) -> Piece:
        """Quickly, carefully, ... by one of the letters of verbs.py."""
        return Piece(
            *self.chance.rare(pairs(words.MANNERS[self.chance.pick(letters)])), Role.MANNER
        )

    def cause(self) -> Piece:
        """Because of the rain, despite the noise, during the concert."""
        kind = self.chance.pick(
            (("because of", "wegen"), ("despite", "trotz"), ("during", "während"))
        )
        noun = self.chance.rare(nouns_of("event" if kind[0] == "during" else "weather"))
        phrase = f"{kind[1]} {_the(noun, GENITIVE)}"
        return Piece(f"{kind[0]} the {noun.english}", phrase, Role.CAUSE)

    def story(
        self, subject: NounPhrase | None = None, most: int = 2, negation: float = 0.12
    ) -> Clause:
        """A whole clause: scene, tense or modal, adjuncts."""
        negated = self.chance.happens(negation)
        clause = self.scene(subject or self.subject(), negated)
        if self.chance.happens(0.2) and can_be_willed(clause):
            clause = self.modal(clause)
        else:
            clause = self.tense(clause)
        return self.adjuncts(clause, most)


def can_be_willed(clause: Clause) -> bool:
    """Whether one can want, plan or be asked to do it."""
    return clause.verb.english.base not in INVOLUNTARY and "S" not in clause.verb.adjuncts


def manners_fit(clause: Clause) -> bool:
    """Whether "quickly" and the like may be added."""
    return not clause.negated and clause.tense != PROGRESSIVE


def _the(noun: Noun, case: int) -> str:
    articles = {DATIVE: {"f": "der"}, GENITIVE: {"f": "der"}}
    other = "dem" if case == DATIVE else "des"
    article = articles[case].get(noun.german.gender, other)
    return f"{article} {noun.german.form(case, noun.german.gender)}"
