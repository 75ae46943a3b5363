"""What a translator returns for a line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from nmt_cli.messages.errors import LinesFailedError

if TYPE_CHECKING:
    from nmt_cli.corpus.text.links import Links
    from nmt_cli.parsing.tree_output import Repairs

Item = TypeVar("Item")
EQUAL = 100  # per cent, the similarity of a segment that has the translation of a memory


class MemoryMatch(NamedTuple):
    """A pair of a memory whose source is that of a segment, or similar."""

    source: str
    target: str
    similarity: int  # per cent


@dataclass(frozen=True)
class Alternative:
    """One of the translations of a line."""

    text: str = ""
    score: float | None = None  # log-probability over the length penalty
    tokens: tuple[str, ...] = ()  # pieces
    repairs: Repairs | None = None  # what made the output a tree; only if the model parses
    log_probability: float = 0.0  # of all pieces and </s>
    token_scores: tuple[float, ...] = ()  # log-probability of each piece and of </s>, if asked for
    alignment: Links = ()  # of words, if asked for
    not_copied: tuple[str, ...] = ()  # protected texts that it has more or less often than the line


@dataclass(frozen=True)
class Translation(Alternative):
    """The best translation of a line; that of a blank line or a failed one has no text and score.

    The score of a line without anything to translate is None, too.
    """

    alternatives: tuple[Alternative, ...] = ()  # the second to n-th best, best first
    error: str | None = None  # why the line could not be translated
    num_parts: int = 1  # more than 1 if the line was too long and was translated in parts
    truncated: bool = False  # the line was too long and its end was not translated
    lacks_sentences: bool = False  # it has few of many sentences that were translated as one text
    drops_invisible: bool = False  # characters of the line that nobody sees were left out
    splits_by_default: bool = False  # its sentences were cut without being asked for
    copies_unseen: bool = False  # a segment was copied, because the model never saw its letters
    memory: tuple[MemoryMatch, ...] = ()  # equal or similar segments of a memory
    is_joined: bool = False  # from segments; what is between them may hold line ends

    @property
    def has_equal_segments(self) -> bool:
        """Whether a segment has the translation of a memory."""
        return any(each.similarity == EQUAL for each in self.memory)

    @property
    def ranked(self) -> tuple[Alternative, ...]:
        """The n best, best first; none for blank lines and failed ones."""
        return () if self.score is None else (self, *self.alternatives)


def in_order(answers: Iterable[Translation | BaseException]) -> list[Translation]:
    """Return the translations of lines.

    For the first bug raises LinesFailedError, which holds the translations of the lines before.
    """
    translations = list[Translation]()
    for place, answer in enumerate(answers):
        if isinstance(answer, BaseException):
            raise LinesFailedError(place, place, translations) from answer
        translations.append(answer)
    return translations


def in_groups(items: Sequence[Item], sizes: Iterable[int]) -> list[Sequence[Item]]:
    """Return ``items`` in groups of these sizes."""
    following = iter(items)
    return [list(islice(following, size)) for size in sizes]


def kth_of_each(every: Sequence[Sequence[Item]]) -> Iterator[list[Item]]:
    """Yield, for each k, the k-th of each of ``every``, or its last."""
    for k in range(max(map(len, every), default=1)):
        yield [each[min(k, len(each) - 1)] for each in every]
