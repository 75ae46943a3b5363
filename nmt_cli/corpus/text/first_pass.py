"""The first look at all lines of the corpora: what is in them, and which pairs are left out."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nmt_cli.corpus.text.cleaning import (
    DUPLICATE,
    EMPTY,
    HELD_OUT,
    HELD_OUT_SENTENCES,
    KEPT,
    RULES,
    SAME_SOURCE,
    SAME_TARGET,
    SCORES,
    FoundHeldOut,
    HeldOut,
    hash_records,
)
from nmt_cli.corpus.text.filters import TEXT_FILTERS, TextFilters
from nmt_cli.corpus.text.links import first_wrong_links
from nmt_cli.corpus.text.parallel_text import LineChunk, Texts
from nmt_cli.corpus.tokenizers.normalization import Side
from nmt_cli.files.lines import is_blank
from nmt_cli.recipe.sections.data import DataConfig

# The filters that remove pairs that repeat others, by their rules.
REMOVING = {DUPLICATE: "remove_duplicates", SAME_SOURCE: SAME_SOURCE, SAME_TARGET: SAME_TARGET}
IN_PIECES = "@@ "  # subword-nmt ends a piece with it if the word goes on in the next piece


class CorpusChunk(NamedTuple):
    """Lines of one of the corpora, and which pairs the first look at them left out."""

    corpus: int
    first_index: int  # of its first pair among those of all corpora
    lines: LineChunk
    left_out: npt.NDArray[np.int8] | None  # the rule that each pair broke; None if none did

    def text_pairs(self) -> tuple[npt.NDArray[np.int8], Texts]:
        """Return the rule that each pair breaks, or ``KEPT``, and the pairs that break none.

        The rules are ``EMPTY`` and those of ``left_out``; those about lengths in pieces are for
        encoded pairs.
        """
        texts = self.lines.texts()
        if self.left_out is None:
            broken = np.full(self.lines.num_lines, KEPT, dtype=np.int8)
        else:
            broken = self.left_out.copy()
        sides = zip(texts.sources, texts.targets, strict=True)
        are_blank = [is_blank(source) or is_blank(target) for source, target in sides]
        broken[are_blank] = RULES.index(EMPTY)
        return broken, texts.only(broken == KEPT)


class ChunkFindings(NamedTuple):
    """What was found in the lines of a chunk; the places are those in the chunk."""

    num_blank: int
    num_equal: int  # pairs whose sides are equal
    num_in_pieces: int
    num_invalid: dict[Side, int]
    held_out: dict[str, FoundHeldOut]  # by the text that it is held out for
    broken: npt.NDArray[np.int8] | None  # the filter that each pair breaks; None if none does
    records: list[npt.NDArray[np.void]]  # of the other pairs, for the finder of each rule
    wrong_links: tuple[int, str] | None  # the first line with one, from 0, and what is wrong


class FittingPairs(NamedTuple):
    """What is left of some repeated pairs by all rules that look at each pair alone."""

    num_others: int  # pairs that break such a rule
    records: list[npt.NDArray[np.void]]  # of the pairs that break none, for the finder of each rule


def findings_in(
    chunk: CorpusChunk, held_out: Mapping[str, HeldOut], cleaner: "Cleaner | None"
) -> ChunkFindings:
    """Return what is in ``chunk``; without a ``cleaner``, no filter is applied."""
    broken, texts = chunk.text_pairs()
    places = np.flatnonzero(broken == KEPT)
    found = {
        name: each.found(texts.sources, texts.targets, places) for name, each in held_out.items()
    }
    wrong = None
    if texts.links is not None:
        wrong = first_wrong_links(texts.sources, texts.targets, texts.links)
    filtered, records = None, list[npt.NDArray[np.void]]()
    if cleaner is not None:
        filtered, records = cleaner.clean(chunk, texts, places, found.values())
    return ChunkFindings(
        num_blank=len(broken) - len(places),
        num_equal=sum(map(str.__eq__, texts.sources, texts.targets)),
        num_in_pieces=sum(
            IN_PIECES in source or IN_PIECES in target
            for source, target in zip(texts.sources, texts.targets, strict=True)
        ),
        num_invalid=texts.num_invalid,
        held_out=found,
        broken=filtered,
        records=records,
        wrong_links=None if wrong is None else (int(places[wrong[0]]), wrong[1]),
    )


class Cleaner:
    """Applies the filters of a recipe to its training text."""

    def __init__(self, data: DataConfig) -> None:
        """Raises UserError if a filter lacks a language."""
        different = dict.fromkeys(map(data.languages_of, data.train))
        self._data, self._filters = data, {each: TextFilters(data, each) for each in different}
        # The rules by which repeated pairs are left out, and those that compare pairs with others:
        # equal pairs of memories are counted even if they stay; then that rule is the last.
        self.removed = [rule for rule, key in REMOVING.items() if getattr(data.filters, key)]
        counts = any(corpus.memory is not None for corpus in data.train)
        counted = [DUPLICATE] if counts and DUPLICATE not in self.removed else []
        self.compared = [*self.removed, *counted]
        # Whether the scores of a corpus decide which of repeated pairs stays.
        self.has_scores = bool(self.compared) and any(corpus.scores for corpus in data.train)

    def clean(
        self,
        chunk: CorpusChunk,
        texts: Texts,
        places: npt.NDArray[np.intp],
        found: Iterable[FoundHeldOut],
    ) -> tuple[npt.NDArray[np.int8] | None, list[npt.NDArray[np.void]]]:
        """Return the filter that each pair of ``chunk`` breaks, and the hashes of those left.

        ``texts`` are those at ``places`` of the chunk, ``found`` which of them are held out.
        Raises UserError if the scores of the corpus are no numbers.
        """
        corpus = self._data.train[chunk.corpus]
        broken = np.full(chunk.lines.num_lines, KEPT, dtype=np.int8)
        scores = self._scores(chunk)
        if corpus.scores is not None and corpus.scores.at_least is not None:
            broken[places[scores[places] < corpus.scores.at_least]] = RULES.index(SCORES)
        filters_of_text = self._filters[self._data.languages_of(corpus)]
        first = filters_of_text.first_broken(texts.sources, texts.targets, broken[places] == KEPT)
        broken[places[first >= 0]] = RULES.index(TEXT_FILTERS[0]) + first[first >= 0]
        filters = self._data.filters
        for each in found:
            for rule, held_out in ((HELD_OUT, each.similar), (HELD_OUT_SENTENCES, each.sharing)):
                if getattr(filters, rule):
                    broken[held_out[broken[held_out] == KEPT]] = RULES.index(rule)
        is_left = broken[places] == KEPT
        records = self._records(chunk, texts.only(is_left), places[is_left], scores)
        return None if is_left.all() else broken, records

    def records(
        self, chunk: CorpusChunk, texts: Texts, places: npt.NDArray[np.intp]
    ) -> list[npt.NDArray[np.void]]:
        """Return the hashes of ``texts``, which are at ``places`` of ``chunk``."""
        return self._records(chunk, texts, places, self._scores(chunk))

    def _records(
        self,
        chunk: CorpusChunk,
        texts: Texts,
        places: npt.NDArray[np.intp],
        scores: npt.NDArray[np.float64],
    ) -> list[npt.NDArray[np.void]]:
        is_memory = self._data.train[chunk.corpus].memory is not None
        compared = scores[places] if self.has_scores else None
        indices = chunk.first_index + places
        return [
            hash_records(rule, texts.sources, texts.targets, indices, compared)
            for rule in self.compared
            if is_memory or rule in self.removed
        ]

    def _scores(self, chunk: CorpusChunk) -> npt.NDArray[np.float64]:
        """Return the scores; of a corpus without them, each pair is better than all others."""
        scores = self._data.train[chunk.corpus].scores
        if scores is None:
            return np.full(chunk.lines.num_lines, np.inf)
        return chunk.lines.numbers(scores.file)
