"""A line on its way through the search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nmt_cli.search.sentences import Outcome, Sentence
from nmt_cli.translating.encoding.copies import Part, ProtectedText
from nmt_cli.translating.encoding.sentence_builder import Wanted
from nmt_cli.translating.interface.translation import MemoryMatch
from nmt_cli.translating.segmentation.segments import Segments, uncut


@dataclass(eq=False)
class LineJob:
    """A line prepared for the search, or why it cannot be translated; and what was found so far."""

    wanted: Wanted = field(default_factory=Wanted)
    error: str | None = None
    layout: Segments = field(default_factory=lambda: uncut(""))
    sources: list[ProtectedText] = field(default_factory=list)  # the segments
    # Of the segments, in a memory.
    matches: list[MemoryMatch] = field(default_factory=list)
    parts: Sequence[Part] = ()
    parts_of_each: Sequence[Sequence[Part]] = ()  # the same parts, those of each segment
    truncated: bool = False
    words: Sequence[str] = ()  # the leaves of the tree, if the model parses
    sentences: Sequence[Sentence] = ()
    outcomes: dict[int, Outcome] = field(default_factory=dict)  # by the place of the sentence

    def ticketed(self) -> list[TicketedSentence]:
        """Return its sentences as the driver of the search takes them."""
        return [((self, place), sentence) for place, sentence in enumerate(self.sentences)]


Ticket = tuple[LineJob, int]  # a line, and which of its sentences
TicketedSentence = tuple[Ticket, Sentence]  # as the driver of the search takes it
