"""When things happen: clock times, days, dates and spans, by tense."""

import english
import german
import words
from chance import Chance
from clauses import PAST, PRESENT
from lexicon import BY_ENGLISH, pairs

Pair = tuple[str, str]


def clock(kind: int, hour: int) -> Pair:
    """A time of day; ``kind`` is one of the nine below: at half past seven, um halb acht."""
    hours, german_hours = english.ONES[1:13], [*german.ONES[1:13], "eins"]
    german_hours[0] = "eins"
    now, german_now = hours[hour - 1], german_hours[hour - 1]
    coming, german_coming = hours[hour % 12], german_hours[hour % 12]
    if kind == 0:
        return f"at {now} o'clock", f"um {'ein' if hour == 1 else german_now} Uhr"
    if kind == 1:
        return f"at half past {now}", f"um halb {german_coming}"
    minutes = (("a quarter", "Viertel"), ("five", "fünf"), ("ten", "zehn"), ("twenty", "zwanzig"))
    part, german_part = minutes[(kind - 2) // 2]
    if kind % 2 == 0:
        return f"at {part} past {now}", f"um {german_part} nach {german_now}"
    return f"at {part} to {coming}", f"um {german_part} vor {german_coming}"


def date(day: int, month: Pair) -> Pair:
    """A day of the year: on the third of May, am dritten Mai."""
    return f"on the {english.ordinal(day)} of {month[0]}", f"am {german.ordinal(day)} {month[1]}"


# The first hour and the number of hours of a part of the day.
HOURS = {"morning": (6, 5), "afternoon": (1, 4), "evening": (6, 4)}


class Times:
    """Draws times that suit a tense."""

    def __init__(self, chance: Chance) -> None:
        self.chance = chance

    def clock(self, part: str = "") -> Pair:
        """A time of day, or of the morning, afternoon or evening; mostly full or half."""
        kind = self.chance.weighted(((0, 0.25), (1, 0.25), (2, 0.11), (3, 0.11)))
        if self.chance.happens(0.3):
            kind = 4 + self.chance.below(6)
        earliest, hours = HOURS.get(part, (1, 12))
        return clock(kind, earliest + self.chance.below(hours))

    def date(self) -> Pair:
        """Any day of the year."""
        month = self.chance.rare(pairs(words.MONTHS))
        return date(1 + self.chance.below(28 if month[0] == "February" else 30), month)

    def weekday(self) -> Pair:
        """On Monday, on Monday morning: am Montag, am Montagmorgen."""
        day, german_day = self.chance.rare(pairs(words.WEEKDAYS))
        if self.chance.happens(0.6):
            return f"on {day}", f"am {german_day}"
        part, german_part = self.chance.pick(pairs(words.DAYTIMES))
        return f"on {day} {part}", f"am {german_day}{german_part}"

    def span(self, sorts: str = "day week month year hour minute") -> Pair:
        """Two and more of a unit; the German is in the dative."""
        unit = BY_ENGLISH[self.chance.pick(sorts.split())]
        value = 2 + self.chance.below(11)
        words_ = f"{english.number(value)} {unit.english_plural}"
        return words_, f"{german.number(value)} {unit.german.form(german.DATIVE, german.PLURAL)}"

    def time(self, tense: str) -> Pair:
        """A time for past, future or habit."""
        if tense == PRESENT:
            return self.habitual()
        kind = self.chance.below(10)
        if kind < 2:
            return self.with_clock(self.weekday())
        if kind == 2:
            return self.date()
        if kind == 3:
            return self.season()
        if kind == 4:
            return self.chance.rare(pairs(words.ANY_TIMES))
        if kind == 5:
            return self.clock()
        return self.past() if tense == PAST else self.future()

    def soon(self) -> Pair:
        """When one asks somebody to do something."""
        kind = self.chance.below(3)
        if kind == 0:
            return self.with_clock(self.weekday())
        if kind == 1:
            return self.clock()
        return self.chance.pick(pairs(words.SOON))

    def season(self) -> Pair:
        """In May, in summer."""
        table = words.MONTHS if self.chance.happens(0.65) else words.SEASONS
        name, german_name = self.chance.rare(pairs(table))
        return f"in {name}", f"im {german_name}"

    def past(self) -> Pair:
        """Yesterday, three days ago."""
        if self.chance.happens(0.25):
            words_, german_words = self.span()
            return f"{words_} ago", f"vor {german_words}"
        return self.near(self.chance.rare(pairs(words.PAST_TIMES)))

    def future(self) -> Pair:
        """Tomorrow, in three days."""
        if self.chance.happens(0.25):
            words_, german_words = self.span()
            return f"in {words_}", f"in {german_words}"
        return self.near(self.chance.rare(pairs(words.FUTURE_TIMES)))

    def near(self, day: Pair) -> Pair:
        """With a time of day now and then, if a day is named."""
        short = day[0] in ("yesterday", "tomorrow", "yesterday evening", "tomorrow evening")
        return self.with_clock(day) if short else day

    def habitual(self) -> Pair:
        """Every day, on Mondays, in summer."""
        kind = self.chance.below(6)
        if kind == 0:
            day, german_day = self.chance.rare(pairs(words.WEEKDAYS))
            return f"on {day}s", f"{german_day.lower()}s"
        if kind == 1:
            return self.season()
        return self.with_clock(self.chance.rare(pairs(words.HABITUAL_TIMES)), 0.2)

    def with_clock(self, day: Pair, probability: float = 0.35) -> Pair:
        """The day, perhaps with the time: on Monday at three o'clock."""
        vague = ("week", "year", "night", "weekend", "noon")
        if day[0].endswith(vague) or not self.chance.happens(probability):
            return day
        hour = self.clock(day[0].split()[-1])
        return f"{day[0]} {hour[0]}", f"{day[1]} {hour[1]}"
