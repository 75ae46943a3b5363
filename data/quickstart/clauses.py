"""Clauses: one set of choices, written in the word order of either language."""

from dataclasses import dataclass, replace
from enum import IntEnum

import words
from english import EnglishVerb
from german import ACCUSATIVE, DATIVE, NOMINATIVE, PERSONS, GermanVerb, preterite_form
from lexicon import Verb
from phrases import NounPhrase


class Role(IntEnum):
    """The role of a constituent; the values give the order of the German middle field."""

    PRONOUN = 0
    PRONOUN_DATIVE = 1
    TIME = 2
    CAUSE = 3
    FREQUENCY = 4
    DATIVE = 5
    OBJECT = 6
    STILL = 7  # schon, gerade, noch nicht
    NEGATION = 8
    LIKING = 9  # gern
    COMPANION = 10
    MANNER = 11
    PLACE = 12
    NEW_OBJECT = 13  # a, some: what is news stands near the end
    GOAL = 14


ENGLISH_ORDER = (
    Role.PRONOUN_DATIVE, Role.DATIVE, Role.PRONOUN, Role.OBJECT, Role.NEW_OBJECT,
    Role.MANNER, Role.GOAL, Role.COMPANION, Role.PLACE, Role.TIME, Role.CAUSE,
)  # fmt: skip
BEFORE_THE_VERB = (Role.FREQUENCY, Role.STILL)


@dataclass(frozen=True, eq=False)
class Piece:
    """A constituent in both languages; either may be empty."""

    english: str
    german: str
    role: Role
    late: bool = False  # in English, after all others: give the book *to the boy*


@dataclass(frozen=True, eq=False)
class Modal:
    """A modal verb of both languages; an empty past means it has none."""

    english: EnglishVerb
    auxiliary: bool  # can, must: no "do" in questions and negations
    german: GermanVerb
    preterite: str


PRESENT, PROGRESSIVE, PAST, PERFECT, FUTURE, CONDITIONAL, SINCE = (
    "present", "progressive", "past", "perfect", "future", "conditional", "since",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Clause:
    """Who does what, when, where and how."""

    subject: NounPhrase
    verb: Verb
    pieces: tuple[Piece, ...] = ()
    tense: str = PRESENT
    modal: Modal | None = None
    negated: bool = False  # in English; a German "nicht" is one of the pieces
    passive: bool = False

    def plus(self, *pieces: Piece) -> "Clause":
        """The clause with more constituents."""
        return replace(self, pieces=self.pieces + pieces)


def object_piece(phrase: NounPhrase, case: int = ACCUSATIVE, late: bool = False) -> Piece:
    """An object without preposition, whose place depends on how new it is."""
    roles = {
        ("pronoun", ACCUSATIVE): Role.PRONOUN,
        ("pronoun", DATIVE): Role.PRONOUN_DATIVE,
        ("indefinite", ACCUSATIVE): Role.NEW_OBJECT,
    }
    role = roles.get((phrase.standing, case), Role.DATIVE if case == DATIVE else Role.OBJECT)
    return Piece(phrase.english_object, phrase.german(case), role, late)


# --- English ---------------------------------------------------------------------------------


def english_verbs(clause: Clause, inverted: bool) -> tuple[str, str]:
    """The auxiliary (or an empty string) and the rest of the verbs."""
    verb, person = clause.verb.english, clause.subject.person
    base = f"be {verb.participle}" if clause.passive else verb.base
    if clause.modal:
        return _with_modal(clause, base, inverted)
    if clause.tense in (FUTURE, CONDITIONAL):
        return ("will" if clause.tense == FUTURE else "would"), base
    has = "has" if person == "er" else "have"
    if clause.tense == PERFECT:
        return has, f"been {verb.participle}" if clause.passive else verb.participle
    if clause.tense == SINCE:
        return has, f"been {verb.ing}"
    return _simple(clause, base, inverted)


def _simple(clause: Clause, base: str, inverted: bool) -> tuple[str, str]:
    verb, person = clause.verb.english, clause.subject.person
    be = BE.simple_past(person) if clause.tense == PAST else BE.present(person)
    if clause.tense == PROGRESSIVE:
        return be, verb.ing
    if clause.passive:
        return be, verb.participle
    if verb.base == "be":
        return be, ""
    return _lexical(verb, clause, base, inverted)


def _lexical(verb: EnglishVerb, clause: Clause, base: str, inverted: bool) -> tuple[str, str]:
    """A simple tense of a verb that needs "do" in questions and negations."""
    past, person = clause.tense == PAST, clause.subject.person
    if inverted or clause.negated:
        return "did" if past else ("does" if person == "er" else "do"), base
    return "", verb.simple_past(person) if past else verb.present(person)


def _with_modal(clause: Clause, base: str, inverted: bool) -> tuple[str, str]:
    assert clause.modal
    modal, past = clause.modal.english, clause.tense == PAST
    if modal.base == "be":
        form = BE.simple_past if past else BE.present
        return form(clause.subject.person), f"{modal.tail} {base}"
    if modal.base == "must" and (past or clause.negated):
        modal = HAVE_TO  # "must not" does not mean "muss nicht"
    elif clause.modal.auxiliary:
        return (modal.past if past else modal.base), f"{modal.tail} {base}".strip()
    auxiliary, form_ = _lexical(modal, clause, modal.base, inverted)
    return auxiliary, f"{form_} {modal.tail} {base}"


BE = EnglishVerb("be", "was", "been")
HAVE_TO = EnglishVerb("have", "had", "had", "to")


def english_clause(clause: Clause, question: bool = False, first: str = "") -> str:
    """The clause as a statement or, with ``question``, as an inverted question after ``first``."""
    auxiliary, rest = english_verbs(clause, question)
    not_ = "not" if clause.negated else ""
    before = " ".join(p.english for p in clause.pieces if p.role in BEFORE_THE_VERB)
    subject = clause.subject.english
    start = (auxiliary, subject, not_) if question else (subject, auxiliary, not_)
    return joined(first, *start, before, rest, english_rest(clause))


def english_rest(clause: Clause) -> str:
    """What follows the verbs, each constituent in its place."""
    verb = clause.verb.english
    ordered = sorted(
        (p for p in clause.pieces if p.english and p.role not in BEFORE_THE_VERB),
        key=_english_rank,
    )
    pieces = [p.english for p in ordered]
    tail_at = 0
    if verb.loose and not clause.passive and ordered and ordered[0].role == Role.PRONOUN:
        tail_at = 1
    return joined(*pieces[:tail_at], verb.tail, *pieces[tail_at:])


def _english_rank(piece: Piece) -> float:
    rank = ENGLISH_ORDER.index(piece.role)
    return ENGLISH_ORDER.index(Role.NEW_OBJECT) + 0.5 if piece.late else rank


def english_infinitive(clause: Clause) -> str:
    """The clause after "to", without its subject."""
    return joined("to", clause.verb.english.base, english_rest(clause))


# --- German ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class GermanVerbs:
    """The finite verb, the separable prefix if it is alone, and what closes the clause."""

    finite: str
    prefix: str
    closing: str


def german_verbs(clause: Clause) -> GermanVerbs:
    """The verbs of the clause by tense: English past is perfect save for war, hatte, konnte."""
    verb, person = clause.verb.german, clause.subject.person
    infinitive = f"{verb.participle} werden" if clause.passive else verb.full_infinitive()
    if clause.modal:
        return GermanVerbs(_modal_form(clause.modal, clause.tense, person), "", infinitive)
    if clause.tense == FUTURE:
        return GermanVerbs(WERDEN.present(person), "", infinitive)
    if clause.tense == CONDITIONAL:
        return GermanVerbs(preterite_form("würde", person), "", infinitive)
    if clause.passive:
        if clause.tense == PERFECT:
            return GermanVerbs(SEIN.present(person), "", f"{verb.participle} worden")
        form = WERDEN.preterite if clause.tense == PAST else WERDEN.present
        return GermanVerbs(form(person), "", verb.participle)
    if clause.tense in (PAST, PERFECT):
        return _perfect(verb, person)
    return GermanVerbs(verb.present(person), verb.prefix.strip(), "")


def _perfect(verb: GermanVerb, person: str) -> GermanVerbs:
    if verb.has_preterite:
        return GermanVerbs(verb.preterite(person), "", "")
    auxiliary = SEIN if verb.auxiliary == "sein" else HABEN
    return GermanVerbs(auxiliary.present(person), "", verb.participle)


def _modal_form(modal: Modal, tense: str, person: str) -> str:
    return (
        preterite_form(modal.preterite, person) if tense == PAST else modal.german.present(person)
    )


SEIN, HABEN, WERDEN = GermanVerb("sein"), GermanVerb("haben"), GermanVerb("werden")
REFLEXIVES = dict(zip(PERSONS, ["mich", "dich", "sich", "uns", "sich"], strict=True))


def german_pieces(clause: Clause) -> list[Piece]:
    """The constituents in the order of the middle field, the reflexive pronoun included."""
    pieces = list(clause.pieces)
    if clause.verb.german.reflexive:
        pieces.insert(0, Piece("", REFLEXIVES[clause.subject.person], Role.PRONOUN))
    return sorted((piece for piece in pieces if piece.german), key=lambda piece: piece.role)


def german_field(clause: Clause, with_subject: bool) -> str:
    """The middle field: light pronouns pass a subject that is not one itself."""
    pieces = german_pieces(clause)
    if not with_subject:
        return joined(*(piece.german for piece in pieces))
    light = [p.german for p in pieces if p.role in (Role.PRONOUN, Role.PRONOUN_DATIVE)]
    others = [p.german for p in pieces if p.role not in (Role.PRONOUN, Role.PRONOUN_DATIVE)]
    subject = clause.subject.german(NOMINATIVE)
    if clause.subject.standing == "pronoun":
        return joined(subject, *light, *others)
    return joined(*light, subject, *others)


def german_main(clause: Clause, first: str | None = None) -> str:
    """A main clause: the verb is second after ``first``, or after the subject without it.

    An empty ``first`` leaves the verb in the first place, as in a question.
    """
    verbs = german_verbs(clause)
    closing = (verbs.prefix, verbs.closing)
    if first is None:
        subject = clause.subject.german(NOMINATIVE)
        return joined(subject, verbs.finite, german_field(clause, False), *closing)
    return joined(first, verbs.finite, german_field(clause, True), *closing)


def german_subordinate(clause: Clause, first: str) -> str:
    """A clause that ends with its verb, after a conjunction: weil er ... aufsteht."""
    verbs = german_verbs(clause)
    glue = " " if clause.verb.german.prefix.endswith(" ") else ""
    finite = f"{verbs.prefix}{glue}{verbs.finite}" if verbs.prefix else verbs.finite
    return joined(first, german_field(clause, True), verbs.closing, finite)


def german_relative(clause: Clause) -> str:
    """A clause whose subject is its relative pronoun: der das Buch gelesen hat."""
    subject = replace(clause.subject, standing="pronoun")
    return german_subordinate(replace(clause, subject=subject), "")


def german_infinitive(clause: Clause) -> str:
    """The clause as an infinitive with zu: das Buch zu lesen, früh aufzustehen."""
    return joined(german_field(clause, False), clause.verb.german.zu_infinitive())


def joined(*parts: str) -> str:
    """The parts that are not empty, with spaces between."""
    return " ".join(part for part in parts if part)


def _modal(line: str) -> Modal:
    english_part, german_part = line.strip().split(" = ")
    base, past = (form.replace("~", " ") for form in english_part.split())
    infinitive, *forms, preterite = german_part.split()
    head, _, tail = base.partition(" ")
    auxiliary = head in ("can", "must", "should", "would")
    verb = EnglishVerb(head, past.split(" ")[0], "", tail)
    german = GermanVerb(infinitive, forms=tuple(forms))
    return Modal(verb, auxiliary, german, "" if preterite == "-" else preterite)


MODALS = tuple(_modal(line) for line in words.MODALS.strip().splitlines())
