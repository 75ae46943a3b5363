"""A line on its way through the search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nmt_cli.search.sentences import Outcome, Sentence
from nmt_cli.translating.copies import ProtectedText
from nmt_cli.translating.over_long import Part
from nmt_cli.translating.segments import Segments, uncut
from nmt_cli.translating.translation import MemoryMatch
from nmt_cli.translating.wanted_output import Wanted


@dataclass(eq=False)
class LineJob:
    """A line prepared for the search, or why it cannot be translated; and what was found so far."""

    wanted: Wanted = field(default_factory=Wanted)
    error: str | None = None
    layout: Segments = field(default_factory=lambda: uncut(""))
    sources: Sequence[ProtectedText] = ()  # the segments
    matches: list[MemoryMatch] = field(default_factory=list)  # of the segments, in a memory
    parts: Sequence[Part] = ()
    parts_of_each: Sequence[int] = ()  # how many of the parts each segment has
    truncated: bool = False
    words: Sequence[str] = ()  # the leaves of the tree, if the model parses
    sentences: Sequence[Sentence] = ()
    outcomes: dict[int, Outcome] = field(default_factory=dict)  # by the place of the sentence

    @property
    def is_done(self) -> bool:
        """Whether all its sentences have an outcome."""
        return len(self.outcomes) == len(self.sentences)

    def ticketed(self) -> list[TicketedSentence]:
        """Return its sentences as the driver of the search takes them."""
        return [((self, place), sentence) for place, sentence in enumerate(self.sentences)]


Ticket = tuple[LineJob, int]  # a line, and which of its sentences
TicketedSentence = tuple[Ticket, Sentence]  # as the driver of the search takes it
