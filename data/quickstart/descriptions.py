"""Sentences about a thing described at length: relative clauses, passive, parts, quantities."""

from dataclasses import replace

import verbs
from clauses import (
    FUTURE,
    PAST,
    PRESENT,
    Clause,
    Piece,
    Role,
    english_clause,
    german_main,
    german_relative,
    german_subordinate,
    joined,
    object_piece,
)
from english import EnglishVerb
from everyday import BE, Everyday
from german import ACCUSATIVE, DATIVE, GENITIVE, NOMINATIVE, GermanVerb
from lexicon import BY_ENGLISH, Noun, Verb, adjectives_of, nouns_of, verb_table
from phrases import (
    RELATIVE,
    THE,
    THIS,
    A,
    NounPhrase,
    fixed,
    noun_phrase,
    number_determiner,
    prepositional,
)
from scenes import NOT, can_be_willed
from sentences import Pair, plain_pair, question_pair

# Work that others do for somebody: he has the car repaired, er lässt das Auto reparieren.
DONE_FOR = ("repair", "clean", "wash", "print", "translate", "check", "iron", "photograph")
HAS = EnglishVerb("have", "had", "had")
PARTS = {
    "roof": "building", "entrance": "building", "wall": "room", "floor": "room",
    "owner": "vehicle building", "number": "building:house room:flat",
    "price": "clothes vehicle device",
    "colour": "clothes furniture opening", "size": "room clothes", "age": "person building",
    "title": "document writing", "beginning": "event writing", "end": "event writing",
    "author": "writing document:book",
}  # fmt: skip
KNOWING = {
    "know": "owner author price age size number",
    "forget": "number title price colour size",
    "describe": "roof entrance wall floor colour beginning end",
}
CONTAINERS = (
    ("cup", "drink:coffee drink:tea drink:milk"),
    ("glass", "drink:water drink:milk drink:wine drink:juice drink:lemonade drink:beer"),
    ("bottle", "drink:water drink:milk drink:wine drink:juice drink:lemonade drink:beer"),
    ("basket", "fruit vegetable"),
    ("plate", "dish:soup food:rice food:meat food:cheese pastry:biscuit"),
    ("box", "fruit vegetable"),
)


class Descriptions(Everyday):
    """Draws the sentences whose noun phrases are long."""

    # --- relative clauses ----------------------------------------------------------------------

    def who_does(self, noun: Noun) -> Pair:
        """A relative clause about what somebody does: who lives in Berlin, der ..."""
        who = NounPhrase("who", "whom", fixed(RELATIVE[noun.german.gender]), "er", "m", "pronoun")
        clause = self.scene(who, self.chance.happens(0.1))
        if self.chance.happens(0.15) and can_be_willed(clause):
            clause = self.modal(clause)
        else:
            clause = self.adjuncts(
                self.in_tense(clause, self.chance.pick((PAST, PAST, PRESENT))), 1
            )
        return f" {english_clause(clause)}", f" , {german_relative(clause)} ,"

    def whose(self, noun: Noun) -> Pair:
        """Whose car we repaired: dessen Auto wir repariert haben."""
        verb = self.chance.rare(verb_table(verbs.TRANSITIVE))
        while verb.objects[0].sort in ("dish", "building", "landscape", "event"):
            verb = self.chance.rare(verb_table(verbs.TRANSITIVE))
        thing = self.chance.rare(
            [noun_ for noun_ in verb.objects if not noun_.is_mass] or verb.objects
        )
        if thing.sort == "person":
            thing = self.chance.rare(nouns_of("relative"))
        clause = self.in_tense(Clause(self.pronoun(), verb), PAST)
        owner = fixed(RELATIVE[noun.german.gender])(GENITIVE)
        intro = f"{owner} {thing.german.form(ACCUSATIVE, thing.german.gender)}"
        return (
            f" whose {thing.english} {english_clause(clause)}",
            f" , {german_subordinate(clause, intro)} ,",
        )

    def described_person(self) -> NounPhrase:
        """The man who ...; the woman whose car ..."""
        noun = self.chance.rare(nouns_of("person"))
        tail = self.whose(noun) if self.chance.happens(0.25) else self.who_does(noun)
        return noun_phrase(noun, THE, False, self.attribute(noun, THIS), tail)

    def described_thing(self) -> NounPhrase:
        """The book that I read yesterday; the house in which she lives."""
        kind = self.chance.below(8)
        if kind == 0:
            return self.dwelling()
        if kind == 1:
            return self.awaited()
        verb = self.chance.rare(verb_table(verbs.TRANSITIVE))
        while verb.objects[0].sort in ("person", "dish"):
            verb = self.chance.rare(verb_table(verbs.TRANSITIVE))
        noun = self.noun(verb.objects)
        plural = not noun.is_mass and self.chance.happens(0.3)
        clause = self.in_tense(Clause(self.subject(), verb), self.chance.pick((PAST, PAST, FUTURE)))
        return self.tailed(noun, plural, "that", ACCUSATIVE, self.adjuncts(clause, 1))

    def tailed(
        self, noun: Noun, plural: bool, words_: str, case: int, clause: Clause
    ) -> NounPhrase:
        """The noun with a relative clause from which it is missing."""
        german_word = fixed(RELATIVE["p" if plural else noun.german.gender])(case)
        preposition = clause.verb.preposition
        german_tail = german_subordinate(clause, joined(preposition, german_word))
        tail = (f" {words_} {english_clause(clause)}", f" , {german_tail} ,")
        return noun_phrase(noun, THE, plural, tail=tail)

    def dwelling(self) -> NounPhrase:
        """The house in which she lives."""
        table = (*verb_table(verbs.POSTURE)[-1:], *verb_table(verbs.INTRANSITIVE)[:2])
        verb = replace(self.chance.pick(table), preposition="in")
        clause = self.in_tense(Clause(self.subject(), verb), self.chance.pick((PAST, PRESENT)))
        noun = self.noun(nouns_of("room building:house building:hotel building:castle"))
        return self.tailed(noun, False, "in which", DATIVE, clause)

    def awaited(self) -> NounPhrase:
        """The train for which we waited: der Zug, auf den wir gewartet haben."""
        verb = self.chance.pick([v for v in verb_table(verbs.PREPOSITIONAL) if v.english.tail])
        while " " in verb.english.tail or verb.objects[0].sort == "person":
            verb = self.chance.pick([v for v in verb_table(verbs.PREPOSITIONAL) if v.english.tail])
        bare = replace(verb, english=replace(verb.english, tail=""))
        clause = self.in_tense(Clause(self.subject(), bare), PAST)
        noun = self.noun(verb.objects)
        return self.tailed(noun, False, f"{verb.english.tail} which", verb.case, clause)

    def relative(self) -> Pair:
        """A sentence around a noun with a relative clause."""
        if self.chance.happens(0.5):
            person = self.described_person()
            if self.chance.happens(0.5):
                return plain_pair(self.simple(self.chance.pick((PAST, FUTURE, PRESENT)), person))
            return self.known(person)
        thing = self.described_thing()
        if self.chance.happens(0.6):
            return self.judged(thing)
        return self.known(thing)

    def known(self, phrase: NounPhrase) -> Pair:
        """Do you know the man who ...; ich habe das Buch gesehen, das ..."""
        table = [
            v for v in verb_table(verbs.TRANSITIVE) if v.english.base in ("know", "see", "find")
        ]
        is_person = " who" in phrase.english
        verb = table[1 if self.chance.happens(0.5) else (0 if is_person else 2)]
        tense = PRESENT if verb.english.base == "know" else PAST
        asked = self.chance.happens(0.4)
        subject = self.questioned() if asked else self.subject()
        # A relative clause at the end of the object comes after the last German verb.
        noun, mark, tail = phrase.german(ACCUSATIVE).partition(" ,")
        pieces = (Piece(phrase.english, noun, Role.OBJECT),)
        clause = Clause(subject, verb, pieces, tense)
        text, german = english_clause(clause, asked), german_main(clause, "" if asked else None)
        end = " ?" if asked else ""
        return text + end, f"{german}{mark}{tail}{end}"

    def judged(self, phrase: NounPhrase) -> Pair:
        """The thing is or was expensive."""
        negated = self.chance.happens(0.15)
        piece = Piece(*self.quality_of(phrase), Role.GOAL)
        pieces = (piece, *((NOT,) if negated else ()))
        return plain_pair(
            Clause(phrase, BE, pieces, self.chance.pick((PRESENT, PAST)), negated=negated)
        )

    def quality_of(self, phrase: NounPhrase) -> Pair:
        """An adjective that suits the noun of the phrase."""
        options = adjectives_of(phrase.noun.sort) if phrase.noun else ()
        if not options:
            return "terrible", "schrecklich"
        adjective = self.chance.rare(options)
        return adjective.english, adjective.german.positive

    # --- passive and lassen --------------------------------------------------------------------

    def passive(self) -> Pair:
        """The letter was written by my brother; the car must be repaired."""
        table = [v for v in verb_table(verbs.TRANSITIVE) if "S" not in v.adjuncts]
        verb = self.chance.rare(table)
        while verb.english.base in (
            "lose",
            "forget",
            "put",
            "bring",
            "miss",
            "wear",
            "meet",
            "hear",
            "ask",
            "see",
            "try",
            "understand",
            "find",
            "collect",
            "choose",
            "watch",
            "describe",
        ):
            verb = self.chance.rare(table)
        subject = self.definite(verb.objects, False)
        noun = subject.noun
        if noun and not noun.is_mass and self.chance.happens(0.25):
            subject = noun_phrase(noun, THE, True, self.attribute(noun, THE))
        negated = self.chance.happens(0.1)
        tense = self.chance.pick((PAST, PAST, PRESENT, FUTURE))
        if "D" not in verb.adjuncts and tense == PRESENT:
            tense = PAST
        clause = Clause(subject, verb, (NOT,) if negated else (), tense, None, negated, True)
        if self.chance.happens(0.25):
            clause = self.modal_passive(clause)
        elif self.chance.happens(0.45):
            clause = clause.plus(self.agent())
        if self.chance.happens(0.6):
            when = self.times.time(FUTURE if clause.modal or tense == FUTURE else tense)
            if clause.modal and clause.tense == PAST:
                when = self.times.past()
            clause = clause.plus(Piece(*when, Role.TIME))
        return question_pair(clause) if self.chance.happens(0.15) else self.as_statement(clause)

    def modal_passive(self, clause: Clause) -> Clause:
        """The clause under can, must or should."""
        while True:
            found = self.modal(replace(clause, tense=PRESENT))
            if found.modal and found.modal.english.base in ("can", "must", "should"):
                return found

    def agent(self) -> Piece:
        """By somebody."""
        phrase = (
            self.name() if self.chance.happens(0.3) else self.definite(nouns_of("person relative"))
        )
        return Piece(*prepositional(("by", "von"), DATIVE, phrase), Role.COMPANION)

    def let_do(self) -> Pair:
        """He has the car repaired: er lässt das Auto reparieren."""
        table = [v for v in verb_table(verbs.TRANSITIVE) if v.english.base in DONE_FOR]
        verb, subject = self.chance.rare(table), self.subject()
        phrase, do = self.definite(verb.objects), verb.german.infinitive
        # The infinitive stands where a separable prefix would, in every tense.
        let = Verb(HAS, GermanVerb("lassen", f"{do} ", "lässt", f"{do} lassen"))
        done = f"{phrase.english} {verb.english.participle}"
        clause = Clause(subject, let, (Piece(done, phrase.german(ACCUSATIVE), Role.OBJECT),))
        if self.chance.happens(0.35):
            clause = self.modal(clause)
        else:
            clause = self.in_tense(clause, self.chance.pick((PRESENT, PAST, FUTURE)))
        return self.as_statement(self.with_time(clause))

    # --- parts and quantities ------------------------------------------------------------------

    def part(self, parts: list[str]) -> NounPhrase:
        """The roof of the house: das Dach des Hauses."""
        part = self.chance.rare(parts)
        whole = self.definite(nouns_of(PARTS[part]))
        tail = (f" of {whole.english}", f" {whole.german(GENITIVE)}")
        return noun_phrase(BY_ENGLISH[part], THE, tail=tail)

    def about_part(self) -> Pair:
        """I do not know the price of the coat; she has forgotten the title of the book."""
        table = {v.english.base: v for v in verb_table(verbs.TRANSITIVE)}
        known = self.chance.pick(tuple(KNOWING))
        verb, parts = table[known], KNOWING[known].split()
        negated = known == "know" and self.chance.happens(0.6)
        pieces = (object_piece(self.part(parts)), *((NOT,) if negated else ()))
        asked = self.chance.happens(0.25)
        subject = self.questioned() if asked else self.subject()
        clause = Clause(
            subject, verb, pieces, PRESENT if known == "know" else PAST, negated=negated
        )
        return question_pair(clause) if asked else self.as_statement(clause)

    def quantity(self) -> Pair:
        """I would like two bottles of water: ich möchte zwei Flaschen Wasser."""
        holder, contents = self.chance.pick(CONTAINERS)
        noun, content = BY_ENGLISH[holder], self.chance.rare(nouns_of(contents))
        value = 1 + self.chance.below(6)
        inside = content.english if content.is_mass else content.english_plural
        held = content.german.form(NOMINATIVE, "m" if content.is_mass else "p")
        if content.english == "soup":
            inside, held = "soup", "Suppe"
        if value == 1:
            phrase = noun_phrase(noun, A, tail=(f" of {inside}", f" {held}"))
        else:
            tail = (f" of {inside}", f" {held}")
            phrase = noun_phrase(noun, number_determiner(value), True, tail=tail)
        kind = self.chance.below(4)
        if kind == 0:
            return f"{phrase.english}, please", f"{phrase.german(ACCUSATIVE)} , bitte"
        table = verb_table(verbs.TRANSITIVE)
        verb = self.chance.pick([v for v in table if v.english.base in ("order", "buy")])
        clause = Clause(self.subject(), verb, (object_piece(phrase),), PAST)
        if kind == 1:
            clause = self.modal(replace(clause, tense=PRESENT))
        return self.as_statement(self.with_time(clause))
