"""Sentences made of clauses: statements, questions, subordination, relative clauses."""

from dataclasses import replace

import verbs
import words
from clauses import (
    CONDITIONAL,
    FUTURE,
    PAST,
    PRESENT,
    SINCE,
    Clause,
    Piece,
    Role,
    english_clause,
    english_infinitive,
    english_rest,
    german_field,
    german_infinitive,
    german_main,
    german_subordinate,
    german_verbs,
    joined,
    object_piece,
)
from english import EnglishVerb
from german import (
    ACCUSATIVE,
    NOMINATIVE,
    GermanVerb,
    preterite_form,
    regular_participle,
)
from lexicon import GAMES, Verb, nouns_of, pairs, verb_table
from phrases import HOW_MANY, IT, PRONOUNS, WHICH, A, NounPhrase, fixed, noun_phrase
from scenes import NOT, PLACES, Scenes, can_be_willed

Pair = tuple[str, str]
BE = Verb(EnglishVerb("be", "was", "been"), GermanVerb("sein", participle="gewesen"))
HAVE = Verb(EnglishVerb("have", "had", "had"), GermanVerb("haben", participle="gehabt"))
WHO = NounPhrase("who", "who", fixed("wer wen wem wessen"), "er", "m", "pronoun")
IT_IS = IT["n"]
THE_SUN = NounPhrase("the sun", "the sun", fixed("die_Sonne " * 4), "er", "f")
# Conjunctions with the tenses of main and subordinate clause that make sense together.
CONJUNCTIONS = (
    ("because", "weil", ((PAST, PAST), (PRESENT, PRESENT), (FUTURE, PRESENT), (PAST, PRESENT))),
    ("although", "obwohl", ((PAST, PAST), (PRESENT, PRESENT), (FUTURE, PRESENT))),
    ("when", "als", ((PAST, PAST),)),
    ("when", "wenn", ((FUTURE, PRESENT), (PRESENT, PRESENT))),
    ("if", "wenn", ((FUTURE, PRESENT), (FUTURE, PRESENT))),
    ("while", "während", ((PAST, PAST), (PRESENT, PRESENT))),
    ("before", "bevor", ((PAST, PAST), (FUTURE, PRESENT))),
)
ACQUIRING, AFTERWARDS = verbs.ACQUIRING.split(), verbs.AFTERWARDS.split()
ERRANDS, OMISSIONS = verbs.ERRANDS.split(), verbs.OMISSIONS.split()
WISHES = (
    "vehicle:car vehicle:bicycle vehicle:boat vehicle:motorbike room:garden building:house"
    " animal:dog animal:horse device:camera device:computer instrument:piano"
)
FRONTED = (Role.TIME, Role.PLACE, Role.CAUSE)


def question_pair(clause: Clause, first: Pair = ("", "")) -> Pair:
    """The clause as a question, after a question word if there is one."""
    return f"{english_clause(clause, True, first[0])} ?", f"{german_main(clause, first[1])} ?"


def plain_pair(clause: Clause) -> Pair:
    """The clause as a statement with the subject first."""
    return english_clause(clause), german_main(clause)


def inner_pair(clause: Clause, conjunction: Pair) -> Pair:
    """The clause under a conjunction, with the German verb at the end."""
    text = joined(conjunction[0], english_clause(clause))
    return text, german_subordinate(clause, conjunction[1])


class Sentences(Scenes):
    """Draws whole sentences; every method returns the two texts without their end mark."""

    # --- main clauses --------------------------------------------------------------------------

    def as_statement(self, clause: Clause) -> Pair:
        """The clause as a statement, now and then with a time or place in front."""
        able = [p for p in clause.pieces if p.role in FRONTED and p.english and p.german]
        if not able or not self.chance.happens(0.45):
            return plain_pair(clause)
        front = self.chance.pick(able)
        rest = replace(clause, pieces=tuple(p for p in clause.pieces if p is not front))
        return f"{front.english}, {english_clause(rest)}", german_main(rest, front.german)

    def statement(self) -> Pair:
        """Yesterday, my brother repaired the car."""
        return self.as_statement(self.story(most=3))

    def question(self) -> Pair:
        """Did you read the letter?"""
        return question_pair(self.story(self.questioned(), 2, 0.05))

    def questioned(self) -> NounPhrase:
        """The subject of a question: seldom the speaker."""
        subject = self.subject()
        return PRONOUNS["you"] if subject.person in ("ich", "wir") else subject

    def asked(self) -> tuple[Clause, Pair]:
        """A clause and the question word for one of its adjuncts."""
        clause = self.scene(self.questioned())
        tense = self.chance.pick((PAST, PAST, PRESENT, FUTURE))
        clause = self.in_tense(clause, tense)
        options = [("why", "warum"), ("when", "wann")]
        if any(letter in clause.verb.adjuncts for letter in PLACES):
            options.append(("where", "wo"))
        if "W" in clause.verb.adjuncts:
            options.append(("with whom", "mit wem"))
        if clause.tense == PRESENT:
            options.append(("how often", "wie oft"))
        if "Q" in clause.verb.adjuncts or "G" in clause.verb.adjuncts:
            options.append(("how", "wie"))
        return clause, self.chance.pick(options)

    def word_question(self) -> Pair:
        """Why did Anna sell the car?"""
        return question_pair(*self.asked())

    def subject_question(self) -> Pair:
        """Who broke the vase?"""
        clause = self.scene(WHO)
        clause = self.in_tense(clause, self.chance.pick((PAST, PAST, FUTURE)))
        text, german = plain_pair(self.adjuncts(clause, 1))
        return f"{text} ?", f"{german} ?"

    def object_question(self) -> Pair:
        """Which book did you read? Who did you visit? How many apples did he eat?"""
        verb = self.chance.rare(verb_table(verbs.TRANSITIVE))
        clause = self.in_tense(
            Clause(self.questioned(), verb), self.chance.pick((PAST, PAST, FUTURE))
        )
        clause = self.adjuncts(clause, 1)
        if verb.objects[0].sort == "person":
            return question_pair(clause, ("who", "wen"))
        if self.chance.happens(0.25):
            return question_pair(clause, ("what", "was"))
        noun = self.noun(verb.objects)
        how_many = not noun.is_mass and self.chance.happens(0.4)
        phrase = noun_phrase(noun, HOW_MANY if how_many else WHICH, how_many)
        return question_pair(clause, (phrase.english, phrase.german(ACCUSATIVE)))

    def imperative(self) -> Pair:
        """Please close the door."""
        clause = self.willing(PRONOUNS["you"], self.chance.happens(0.2))
        verb = clause.verb
        manners = "".join(letter for letter in verb.adjuncts if letter in "QVLA")
        if manners and not clause.negated and self.chance.happens(0.4):
            clause = clause.plus(self.manner(manners))
        elif self.chance.happens(0.4):
            clause = clause.plus(Piece(*self.times.soon(), Role.TIME))
        not_ = "do not" if clause.negated else ""
        text = joined("please", not_, verb.english.base, english_rest(clause))
        order = joined("bitte", verb.german.imperative(), german_field(clause, False))
        return text, joined(order, verb.german.prefix.strip())

    def liking(self) -> Pair:
        """She likes to dance: sie tanzt gern."""
        subject = self.subject()
        clause = self.lasting(subject)
        if self.chance.happens(0.5):
            letters = "".join(letter for letter in clause.verb.adjuncts if letter in PLACES)
            if letters:
                clause = clause.plus(Piece(*self.place(letters), Role.PLACE))
            elif "W" in clause.verb.adjuncts:
                clause = clause.plus(self.companion())
        likes = "likes" if subject.person == "er" else "like"
        text = joined(subject.english, likes, english_infinitive(clause))
        return text, german_main(clause.plus(Piece("", "gern", Role.LIKING)))

    def lasting(self, subject: NounPhrase) -> Clause:
        """Somebody does something that lasts: works, plays chess, reads books."""
        if self.chance.happens(0.35):
            return Clause(subject, self.chance.rare(GAMES))
        while True:
            clause = self.scene(subject)
            if "D" in clause.verb.adjuncts:
                return clause

    def since(self) -> Pair:
        """He has been working here for three years: er arbeitet seit drei Jahren hier."""
        table = [v for v in verb_table(verbs.INTRANSITIVE) if "D" in v.adjuncts] + list(GAMES)
        subject = self.subject()
        if self.chance.happens(0.3):
            living = verb_table(verbs.POSTURE)[-1]
            clause = Clause(subject, living, (Piece(*self.place("ccl"), Role.PLACE),), SINCE)
        else:
            clause = Clause(subject, self.chance.rare(table), (), SINCE)
        long = clause.verb.english.base in ("live", "work", "study", "play", "train", "practise")
        span, german_span = self.times.span("week month year" if long else "hour minute")
        clause = clause.plus(Piece(f"for {span}", f"seit {german_span}", Role.TIME))
        return self.as_statement(clause)

    # --- two clauses ---------------------------------------------------------------------------

    def weather(self, tense: str) -> Clause:
        """It is raining, it was cold, the sun will be shining."""
        if self.chance.happens(0.5):
            pair = self.chance.rare(pairs(words.WEATHER_ADJECTIVES))
            return Clause(IT_IS, BE, (Piece(*pair, Role.GOAL),), tense)
        doing, infinitive = self.chance.rare(pairs(words.WEATHER_VERBS))
        shining = infinitive == "scheinen"
        participle = "geschienen" if shining else regular_participle("", infinitive)
        german = GermanVerb(infinitive, participle=participle)
        verb = Verb(EnglishVerb("be", "was", "been", doing), german)
        return Clause(THE_SUN if shining else IT_IS, verb, (), tense)

    def simple(self, tense: str, subject: NounPhrase | None = None, most: int = 1) -> Clause:
        """A clause in about the given tense, short enough to be combined."""
        if self.chance.happens(0.12) and subject is None:
            return self.weather(tense)
        clause = self.scene(subject or self.subject(), most > 0 and self.chance.happens(0.15))
        if most and self.chance.happens(0.18) and can_be_willed(clause):
            return self.modal_in(clause, tense)
        return self.adjuncts(self.in_tense(clause, tense), most)

    def subordination(self) -> Pair:
        """We stayed at home because it was raining. When he arrives, ..."""
        conjunction, german, tenses = self.chance.pick(CONJUNCTIONS)
        main_tense, inner_tense = self.chance.pick(tenses)
        subject = self.subject()
        main = self.simple(main_tense, subject)
        if conjunction in ("while", "before"):
            found = self.simple(inner_tense, self.echo(subject), 0)
        else:
            found = self.reason(inner_tense, self.echo(subject))
        inner = inner_pair(found, (conjunction, german))
        if self.chance.happens(0.4):
            text, translation = english_clause(main), german_main(main, f"{inner[1]} ,")
            return f"{inner[0]}, {text}", translation
        text, translation = plain_pair(main)
        return f"{text} {inner[0]}", f"{translation} , {inner[1]}"

    def echo(self, subject: NounPhrase) -> NounPhrase:
        """The subject again as a pronoun, or somebody else."""
        if subject.standing == "pronoun" or self.chance.happens(0.3):
            return (
                subject
                if subject.standing == "pronoun" and self.chance.happens(0.5)
                else self.subject()
            )
        if subject.gender == "n":
            return self.pronoun()
        return PRONOUNS[{"m": "he", "f": "she", "p": "they"}[subject.gender]]

    def reason(self, tense: str, person: NounPhrase) -> Clause:
        """A clause that gives a reason: the weather, a mood, no time, or what somebody did."""
        kind = self.chance.below(10)
        if kind < 2:
            return self.weather(tense)
        if kind < 6:
            pair = self.chance.rare(pairs(words.MOODS))
            return Clause(person, BE, (Piece(*pair, Role.GOAL),), tense)
        if kind == 6:
            thing, german = self.chance.rare(pairs(words.RESOURCES))
            if self.chance.happens(0.5):
                return Clause(person, HAVE, (Piece(thing, german, Role.NEW_OBJECT),), tense)
            none = f"kein {german}" if german in ("Geld", "Glück") else f"keine {german}"
            piece = Piece(f"any {thing}", none, Role.NEW_OBJECT)
            return Clause(person, HAVE, (piece,), tense, negated=True)
        return self.simple(tense, person, 0 if tense == PRESENT else 1)

    def reported(self) -> Pair:
        """She says that ...; do you know whether ...; he asked why ..."""
        subject = self.subject()
        if self.chance.happens(0.55):
            verb = self.chance.rare(verb_table(verbs.SAYING))
            # A hope is about the future; after a verb in the past, the inner clause is past too.
            hopes = verb.english.base == "hope"
            tense = PRESENT if hopes else self.chance.pick((PAST, PRESENT))
            clause = self.in_tense(Clause(subject, verb), tense)
            inner_tense = FUTURE if hopes else self.chance.pick((PAST, FUTURE, PRESENT))
            inner_tense = PAST if tense == PAST else inner_tense
            inner = inner_pair(self.simple(inner_tense, self.echo(subject)), ("that", "dass"))
            pair = plain_pair(clause)
        else:
            pair, inner = self.wondering(subject)
        return f"{pair[0]} {inner[0]}", f"{pair[1]} , {inner[1]}"

    def wondering(self, subject: NounPhrase) -> tuple[Pair, Pair]:
        """Somebody asks or does not know whether or why."""
        verb = self.chance.rare(verb_table(verbs.WONDERING))
        clause = self.in_tense(Clause(subject, verb), self.chance.pick((PAST, PRESENT)))
        if verb.english.base == "know":
            clause = replace(clause, negated=True).plus(NOT)
        if self.chance.happens(0.4):
            inner = inner_pair(self.simple(PAST), ("whether", "ob"))
        else:
            asked, word = self.asked()
            inner = inner_pair(asked, word)
        return plain_pair(clause), inner

    def infinitive(self) -> Pair:
        """He tries to repair the car; she has forgotten to close the door."""
        subject = self.subject()
        verb = self.chance.rare(verb_table(verbs.TRYING))
        clause = self.in_tense(Clause(subject, verb), self.chance.pick((PAST, PAST, PRESENT)))
        inner = self.willing(subject)
        pair = plain_pair(clause)
        return f"{pair[0]} {english_infinitive(inner)}", f"{pair[1]} , {german_infinitive(inner)}"

    def purpose(self) -> Pair:
        """She went to the shop in order to buy bread; he left without paying the bill."""
        subject = self.subject()
        kind = self.chance.below(2)
        main = self.in_tense(self.motion(subject, False), self.chance.pick((PAST, PAST, FUTURE)))
        main = self.adjuncts(main, 1)
        inner = self.scene_of(subject, ERRANDS if kind else OMISSIONS)
        pair = plain_pair(main)
        german = german_infinitive(inner)
        if kind == 0:
            verb = inner.verb.english
            return (
                f"{pair[0]} without {verb.ing} {english_rest(inner)}",
                f"{pair[1]} , ohne {german}",
            )
        return f"{pair[0]} in order {english_infinitive(inner)}", f"{pair[1]} , um {german}"

    def judgement(self) -> Pair:
        """It is important to learn the rules."""
        word, german = self.chance.rare(pairs(words.JUDGEMENTS))
        inner = self.willing(PRONOUNS["he"])
        past = self.chance.happens(0.3)
        text = f"it {'was' if past else 'is'} {word} {english_infinitive(inner)}"
        return text, f"es {'war' if past else 'ist'} {german} , {german_infinitive(inner)}"

    def coordination(self) -> Pair:
        """It was raining, so we stayed at home; he sings and she dances."""
        tense = self.chance.pick((PAST, PAST, FUTURE, PRESENT))
        kind = self.chance.pick(("and", "but", "so"))
        subject = self.subject()
        first = self.reason(tense, subject) if kind == "so" else self.simple(tense, subject)
        if kind == "but":
            second = self.reason(tense, self.echo(subject))
        else:
            second = self.simple(tense, self.subject() if kind == "and" else self.echo(subject))
        pair = plain_pair(first)
        text, german = english_clause(second), german_main(second)
        if kind == "so":
            return f"{pair[0]}, so {text}", f"{pair[1]} , {german_main(second, 'deshalb')}"
        if kind == "but":
            return f"{pair[0]}, but {text}", f"{pair[1]} , aber {german}"
        return f"{pair[0]} and {text}", f"{pair[1]} und {german}"

    def sequel(self) -> Pair:
        """He found a table and repaired it: ... und ihn repariert."""
        table = verb_table(verbs.TRANSITIVE)
        first = self.chance.rare([verb for verb in table if verb.english.base in ACQUIRING])
        noun = self.noun(first.objects)
        later = [v for v in table if v.english.base in AFTERWARDS and noun in v.objects]
        if noun.is_mass or not later:
            return self.sequel()
        second = self.chance.rare(later)
        subject = self.subject()
        determiner, plural = self.determiner(noun)
        phrase = noun_phrase(noun, determiner, plural, self.attribute(noun, determiner))
        start = Clause(subject, first, (object_piece(phrase),), PAST)
        if self.chance.happens(0.6):
            start = start.plus(Piece(*self.times.past(), Role.TIME))
        it = IT["p" if plural else noun.german.gender]
        then = Clause(subject, second, (object_piece(it),), PAST)
        pair = self.as_statement(start)
        text = joined(second.english.past, english_rest(then))
        return f"{pair[0]} and {text}", joined(
            pair[1], "und", german_field(then, False), german_verbs(then).closing
        )

    def unreal(self) -> Pair:
        """If I were rich, I would buy a house."""
        subject = self.pronoun()
        would = replace(self.willing(subject), tense=CONDITIONAL)
        if self.chance.happens(0.5):
            state = self.chance.rare(pairs(words.MOODS))
            were = joined("if", subject.english, "were", state[0])
            be = preterite_form("wäre", subject.person)
            wenn = joined("wenn", subject.german(NOMINATIVE), state[1], be)
        else:
            owned, german = self.wished()
            were = joined("if", subject.english, "had", owned)
            have = preterite_form("hätte", subject.person)
            wenn = joined("wenn", subject.german(NOMINATIVE), german, have)
        return f"{were}, {english_clause(would)}", german_main(would, f"{wenn} ,")

    def wished(self) -> Pair:
        """Time, or a house."""
        if self.chance.happens(0.4):
            return self.chance.rare(pairs(words.RESOURCES))
        noun = self.chance.rare(nouns_of(WISHES))
        phrase = noun_phrase(noun, A, False, self.attribute(noun, A))
        return phrase.english, phrase.german(ACCUSATIVE)
