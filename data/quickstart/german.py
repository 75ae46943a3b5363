"""German inflection: nouns, articles, adjectives, verbs and numbers, by rule and by table."""

import re
from dataclasses import dataclass, field
from functools import cache

NOMINATIVE, ACCUSATIVE, DATIVE, GENITIVE = range(4)
PLURAL = "p"

# One string per case; in it one ending per gender: m f n, and p for the plural. "-" is none.
DER = ("der die das die", "den die das die", "dem der dem den", "des der des der")
DIESER = ("er e es e", "en e es e", "em er em en", "es er es er")
EIN = ("- e - e", "en e - e", "em er em en", "es er es er")
WEAK = ("e e e en", "en e e en", "en en en en", "en en en en")
MIXED = ("er e es en", "en e es en", "en en en en", "en en en en")
STRONG = ("er e es e", "en e es e", "em er em en", "en er en er")


def ending(table: tuple[str, ...], case: int, gender: str) -> str:
    """The entry of ``table`` for a case and a gender (or the plural)."""
    found = table[case].split()["mfnp".index(gender)]
    return "" if found == "-" else found


@dataclass(frozen=True, eq=False)
class GermanNoun:
    """A noun as a dictionary gives it; ``oblique`` only where the singular is weak."""

    singular: str
    plural: str
    gender: str
    oblique: str = ""
    modifier: str = ""  # what a compound begins with: Küchen, for Küchentisch

    def form(self, case: int, gender: str) -> str:
        """The noun in a case, in the plural if ``gender`` is PLURAL."""
        word = self._form(case, gender)
        return self.modifier + word[0].lower() + word[1:] if self.modifier else word

    def _form(self, case: int, gender: str) -> str:
        if gender == PLURAL:
            return dative_plural(self.plural) if case == DATIVE else self.plural
        if case == NOMINATIVE or gender == "f":
            return self.singular
        if self.oblique:
            return self.oblique
        return genitive(self.singular, self.plural) if case == GENITIVE else self.singular


def genitive(singular: str, plural: str) -> str:
    """The genitive singular of a masculine or neuter noun: Vaters, Kindes, Parks, Busses."""
    if plural == singular + "se":
        return singular + "ses"
    if singular.endswith(("s", "ß", "x", "z", "sch", "st", "arzt")):
        return singular + "es"
    # Loans keep a bare -s (des Parks); native words of one syllable prefer -es (des Kindes).
    native = singular.endswith(
        ("d", "t", "g", "f", "b", "ch", "ll", "nn", "hr")
    ) and not plural.endswith("s")
    return singular + ("es" if native and syllables(singular) == 1 else "s")


def syllables(word: str) -> int:
    """The number of groups of vowels."""
    return len(re.findall(r"[aeiouäöüy]+", word.lower()))


def dative_plural(plural: str) -> str:
    """The dative of a plural: with -n, unless it ends in -n or -s."""
    return plural if plural.endswith(("n", "s")) else plural + "n"


@dataclass(frozen=True, eq=False)
class GermanAdjective:
    """An adjective with its comparative."""

    positive: str
    comparative: str

    @property
    def superlative(self) -> str:
        """The stem of the superlative: größt, best, teuerst."""
        if self.positive in ("gut", "groß"):
            return {"gut": "best", "groß": "größt"}[self.positive]
        if self.positive.endswith(("el", "er")):
            return self.positive + "st"
        stem = self.comparative.removesuffix("er")
        hissing = stem.endswith(("d", "t", "s", "ß", "z", "sch", "eu"))
        bare = stem.endswith("end") or (stem.endswith("isch") and syllables(stem) > 1)
        return stem + ("est" if hissing and not bare else "st")


def adjective_stem(positive: str) -> str:
    """The form that takes endings: dunkel gives dunkl, teuer teur, müde müd."""
    return re.sub(r"(el|(?<=[ae]u)er|e)$", lambda match: match[0][1:], positive)


@dataclass(frozen=True, eq=False)
class Determiner:
    """What stands before a noun: ``kind`` decides its own ending and the adjective's."""

    english: str
    english_plural: str
    german: str
    kind: str  # der, dieser, ein, strong (no ending) or viele (endings, then strong ones)

    def form(self, case: int, gender: str) -> str:
        """The determiner itself; an empty string where German has none."""
        if self.kind == "der":
            return ending(DER, case, gender)
        if self.german == "ein" and gender == PLURAL:
            return ""
        if self.kind == "strong":
            return self.german
        return self.german + ending(EIN if self.kind == "ein" else DIESER, case, gender)

    def adjective_ending(self, case: int, gender: str) -> str:
        """The ending of an adjective after this determiner."""
        if self.kind in ("strong", "viele") or (self.german == "ein" and gender == PLURAL):
            return ending(STRONG, case, gender)
        return ending(MIXED if self.kind == "ein" else WEAK, case, gender)


# ich, du, er, wir, sie; the last column is the preterite of the first person.
IRREGULAR = {
    "sein": "bin bist ist sind sind war",
    "haben": "habe hast hat haben haben hatte",
    "werden": "werde wirst wird werden werden wurde",
    "wissen": "weiß weißt weiß wissen wissen wusste",
    "mögen": "mag magst mag mögen mögen mochte",
    "tun": "tue tust tut tun tun tat",
}
PERSONS = ("ich", "du", "er", "wir", "sie")
UNACCENTED = ("be", "ge", "er", "ver", "zer", "ent", "emp", "über", "unter", "miss")


@dataclass(frozen=True, eq=False)
class GermanVerb:
    """A verb as a dictionary gives it; ``prefix`` is what separates from it."""

    infinitive: str
    prefix: str = ""
    third: str = ""
    participle: str = ""
    auxiliary: str = "haben"
    reflexive: bool = False
    forms: tuple[str, ...] = field(default=())

    def full_infinitive(self) -> str:
        """Prefix and verb together, as a modal verb asks for them: aufstehen."""
        return self.prefix + self.infinitive

    def zu_infinitive(self) -> str:
        """The infinitive with zu, which goes between prefix and verb: aufzustehen."""
        if self.prefix and not self.prefix.endswith(" "):
            return f"{self.prefix}zu{self.infinitive}"
        return f"{self.prefix}zu {self.infinitive}"

    def present(self, person: str) -> str:
        """The finite present form without the prefix."""
        return present_forms(self)[PERSONS.index(person)]

    def preterite(self, person: str) -> str:
        """The preterite, kept for the few verbs whose perfect nobody uses."""
        return preterite_form(IRREGULAR[self.infinitive].split()[5], person)

    @property
    def has_preterite(self) -> bool:
        """Whether the past is put in the preterite: war, hatte, wusste."""
        return not self.prefix and self.infinitive in IRREGULAR

    def imperative(self) -> str:
        """The order to one friend, without the prefix: öffne, nimm, fahre."""
        stem = verb_stem(self.infinitive)
        if "i" in self.third and "i" not in stem:
            return self.third[:-1]
        return conjugated_first(self.infinitive)


def verb_stem(infinitive: str) -> str:
    """What is left without -en or -n: kauf, sammel, tu."""
    return infinitive[:-2] if infinitive.endswith("en") else infinitive[:-1]


def regular_third(stem: str) -> str:
    """The er-form of a verb that keeps its vowel: kauft, arbeitet, öffnet."""
    clustered = re.search(r"[^aeiouäöülrhmn][mn]$", stem)
    return stem + ("et" if stem.endswith(("d", "t")) or clustered else "t")


def conjugated_first(infinitive: str) -> str:
    """The ich-form: kaufe, sammle, wandere."""
    stem = verb_stem(infinitive)
    return stem[:-2] + "le" if infinitive.endswith("eln") else stem + "e"


@cache
def present_forms(verb: GermanVerb) -> tuple[str, ...]:
    """All present forms in the order of ``PERSONS``."""
    if verb.forms:
        return verb.forms
    if verb.infinitive in IRREGULAR:
        return tuple(IRREGULAR[verb.infinitive].split()[:5])
    stem = verb_stem(verb.infinitive)
    third = verb.third or regular_third(stem)
    # er hält has no ending of its own: du hältst keeps the whole of it.
    base = third if verb.third and stem.endswith("t") and third[-2] != "t" else third[:-1]
    second = base + ("t" if base.endswith(("s", "ß", "z", "x")) else "st")
    return conjugated_first(verb.infinitive), second, third, verb.infinitive, verb.infinitive


def preterite_form(first: str, person: str) -> str:
    """The preterite of a person from that of ich: wollte gives wolltest, war gives waren."""
    if person in ("ich", "er"):
        return first
    if person == "du":
        return first + "st"
    return first + ("n" if first.endswith("e") else "en")


def regular_participle(prefix: str, infinitive: str) -> str:
    """The participle of a weak verb: gekauft, eingekauft, bestellt, repariert."""
    unstressed = infinitive.startswith(UNACCENTED) or infinitive.endswith("ieren")
    return prefix + ("" if unstressed else "ge") + regular_third(verb_stem(infinitive))


ONES = [
    "null",
    "ein",
    "zwei",
    "drei",
    "vier",
    "fünf",
    "sechs",
    "sieben",
    "acht",
    "neun",
    "zehn",
    "elf",
    "zwölf",
    "dreizehn",
    "vierzehn",
    "fünfzehn",
    "sechzehn",
    "siebzehn",
    "achtzehn",
    "neunzehn",
]
TENS = [
    "_",
    "_",
    "zwanzig",
    "dreißig",
    "vierzig",
    "fünfzig",
    "sechzig",
    "siebzig",
    "achtzig",
    "neunzig",
]


def number(value: int) -> str:
    """A number from 1 to 9,999 in one word; 1 is eins, and so is a final 1 (hunderteins)."""
    word = _number(value)
    return word + "s" if value % 100 == 1 else word


def _number(value: int) -> str:
    if value >= 1000:
        return _number(value // 1000) + "tausend" + (_number(value % 1000) if value % 1000 else "")
    if value >= 100:
        return _number(value // 100) + "hundert" + (_number(value % 100) if value % 100 else "")
    if value < 20:
        return ONES[value]
    return (f"{ONES[value % 10]}und" if value % 10 else "") + TENS[value // 10]


def ordinal(value: int) -> str:
    """The ordinal after "am": ersten, dritten, siebten, zwanzigsten."""
    irregular = {1: "ersten", 3: "dritten", 7: "siebten", 8: "achten"}
    return irregular.get(value, _number(value) + ("ten" if value < 20 else "sten"))


CONTRACTIONS = {
    "in dem": "im", "in das": "ins", "an dem": "am", "an das": "ans", "zu dem": "zum",
    "zu der": "zur", "von dem": "vom", "bei dem": "beim",
}  # fmt: skip


def contract(phrase: str) -> str:
    """A preposition and its article in one word where German has one: im, zur, vom."""
    words = phrase.split(" ", 2)
    joined = CONTRACTIONS.get(" ".join(words[:2]))
    return " ".join([joined, *words[2:]]) if joined else phrase
