"""English inflection: plurals, verb forms, comparison, articles and numbers."""

import re
from dataclasses import dataclass

VOWELS = "aeiou"
# Letters that are doubled before -ing although the past does not show it.
DOUBLING = ("get", "swim", "sit", "put", "forget", "begin", "run")


def plural(noun: str) -> str:
    """The regular plural: boxes, stories, shops."""
    return noun[:-1] + "ies" if re.search(r"[^aeiou]y$", noun) else sibilant_s(noun)


def sibilant_s(word: str) -> str:
    """The word with -s, or -es after a hiss: buses, dishes."""
    return word + ("es" if word.endswith(("s", "x", "ch", "sh", "z")) else "s")


def third_person(verb: str) -> str:
    """The he-form of the present: goes, tries, has."""
    irregular = {"have": "has", "go": "goes", "do": "does", "be": "is"}
    return irregular.get(verb) or plural(verb)


def regular_past(verb: str) -> str:
    """The regular past: loved, tried, waited."""
    if verb.endswith("e"):
        return verb + "d"
    return verb[:-1] + "ied" if re.search(r"[^aeiou]y$", verb) else verb + "ed"


@dataclass(frozen=True, eq=False)
class EnglishVerb:
    """A verb and what follows it; a loose tail lets an object pronoun pass (turn it on)."""

    base: str
    past: str
    participle: str
    tail: str = ""
    loose: bool = False

    @property
    def ing(self) -> str:
        """The -ing form: lying, getting, writing, buying."""
        if self.base == "lie":
            return "lying"
        if self.base in DOUBLING or self.past == f"{self.base}{self.base[-1]}ed":
            return f"{self.base}{self.base[-1]}ing"
        silent = self.base.endswith("e") and self.base != "be"
        return (self.base[:-1] if silent else self.base) + "ing"

    def present(self, person: str) -> str:
        """The finite present; persons are named by the German pronouns."""
        if self.base == "be":
            return {"ich": "am", "er": "is"}.get(person, "are")
        return third_person(self.base) if person == "er" else self.base

    def simple_past(self, person: str) -> str:
        """The finite past."""
        if self.base == "be":
            return "was" if person in ("ich", "er") else "were"
        return self.past


def compare(adjective: str) -> tuple[str, str]:
    """Comparative and superlative: (bigger, biggest), (more careful, most careful)."""
    irregular = {"good": ("better", "best"), "bad": ("worse", "worst"), "ill": ("worse", "worst")}
    if adjective in irregular:
        return irregular[adjective]
    if adjective.endswith("y") and adjective != "shy":
        return adjective[:-1] + "ier", adjective[:-1] + "iest"
    syllables = len(re.findall(r"[aeiouy]+", adjective.removesuffix("e")))
    if syllables > 1 and adjective not in ("clever", "quiet", "narrow"):
        return f"more {adjective}", f"most {adjective}"
    if re.search(r"^[^aeiou]+[aeiou][^aeiouwy]$", adjective):
        adjective += adjective[-1]
    stem = adjective.removesuffix("e")
    return stem + "er", stem + "est"


def indefinite(words: str) -> str:
    """The words with "a" or "an" before them, by their first sound."""
    vowel = words[0].lower() in VOWELS and not words.startswith(("uni", "use", "Euro"))
    return f"an {words}" if vowel or words.startswith(("hour", "honest")) else f"a {words}"


ONES = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
TENS = ["_", "_", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]


def number(value: int) -> str:
    """A number from 1 to 9,999 in words: two thousand three hundred and forty-one."""
    if value >= 1000:
        rest = value % 1000
        link = " and " if rest < 100 else " "
        return number(value // 1000) + " thousand" + (link + number(rest) if rest else "")
    if value >= 100:
        rest = value % 100
        return number(value // 100) + " hundred" + (" and " + number(rest) if rest else "")
    if value < 20:
        return ONES[value]
    return TENS[value // 10] + (f"-{ONES[value % 10]}" if value % 10 else "")


def ordinal(value: int) -> str:
    """An ordinal up to the thirty-first."""
    irregular = {"one": "first", "two": "second", "three": "third", "five": "fifth"}
    irregular |= {"eight": "eighth", "nine": "ninth", "twelve": "twelfth"}
    tens, _, last = number(value).rpartition("-")
    word = irregular.get(last) or (last[:-1] + "ieth" if last.endswith("y") else last + "th")
    return f"{tens}-{word}" if tens else word


def possessive(owner: str) -> str:
    """One owner with 's: Anna's, the boss's."""
    return owner + "'s"
