"""Reads the corpora of a recipe one after the other, and counts what it finds in their text."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nmt_cli.corpus.text.cleaning import (
    DUPLICATE,
    EMPTY,
    KEPT,
    RULES,
    DroppedLines,
    DuplicateFinder,
    HeldOut,
    Marks,
    has_empty_side,
    pair_hash,
)
from nmt_cli.corpus.text.parallel_text import ParallelText
from nmt_cli.corpus.tokenizers.normalization import Side
from nmt_cli.files.atomic_files import sha256
from nmt_cli.messages.errors import UserError
from nmt_cli.recipe.schema import ParallelFiles

PAIRS_BETWEEN_REPORTS = 1000
IN_PIECES = "@@ "  # subword-nmt ends a piece with it if the word goes on in the next piece


class TextPair(NamedTuple):
    """A pair to encode, with its corpus and line number."""

    corpus: int
    line: int
    source: str
    target: str


class CorpusReport:
    """What was found in one corpus, and what was dropped from it."""

    def __init__(self, files: ParallelFiles) -> None:
        self.files = files
        self.pairs_read = self.pairs_kept = 0
        self.empty = self.duplicates = self.equal_sides = self.in_pieces = 0
        self.in_validation = self.in_test = 0
        self.invalid_utf8: dict[Side, int] = {"source": 0, "target": 0}  # lines
        self.dropped = DroppedLines()

    def count(self, line: int, broken: int) -> None:
        """Count the encoded pair at ``line``; ``broken`` is an index of ``RULES`` or ``KEPT``."""
        if broken == KEPT:
            self.pairs_kept += 1
        else:
            self.dropped.add(RULES[broken], line)

    def facts(self) -> dict[str, Any]:
        """Return the manifest's entry for this corpus."""
        return {
            "source": str(self.files.source),
            "target": str(self.files.target),
            "source_sha256": sha256(self.files.source),
            "target_sha256": sha256(self.files.target),
            "source_bytes": self.files.source.stat().st_size,
            "target_bytes": self.files.target.stat().st_size,
            "pairs_read": self.pairs_read,
            "pairs_kept": self.pairs_kept,
            "dropped": self.dropped.facts(),
            "found": {
                "duplicates": self.duplicates,
                "equal_sides": self.equal_sides,
                "also_in_validation": self.in_validation,
                "also_in_test": self.in_test,
                "in_pieces": self.in_pieces,
                "lines_with_invalid_utf8": self.invalid_utf8,
            },
        }


class ParallelCorpora:
    """Corpora that are read several times: to check them, to train a tokenizer, to encode them."""

    def __init__(
        self,
        files: Sequence[ParallelFiles],
        *,
        remove_duplicates: bool,
        plain: Callable[[ParallelFiles], ParallelFiles] = lambda files: files,
    ) -> None:
        """Take the corpora; ``plain`` returns the text files of a corpus that is no text."""
        self._plain = plain
        self.reports = [CorpusReport(parallel_files) for parallel_files in files]
        self._remove_duplicates = remove_duplicates
        self._repeated = Marks(0)

    def look_over(
        self,
        directory: Path,
        advance: Callable[[int, int], None],
        *,
        validation: HeldOut | None = None,
        test: HeldOut | None = None,
    ) -> None:
        """Read every corpus once, to check its files and to count duplicates and overlaps.

        Hashes that do not fit in memory are written to ``directory``. ``advance`` is called with
        the numbers of pairs and bytes read since its last call. ``validation`` and ``test`` hold
        the pairs to look for. Raises UserError if a file cannot be read, is damaged or empty, or if
        the two files of a corpus have different numbers of lines.
        """
        finder = DuplicateFinder(directory)
        validation, test = validation or HeldOut(), test or HeldOut()
        index = 0
        for report in self.reports:
            text, first = ParallelText(self._plain(report.files)), index
            num_pairs = num_bytes = 0  # already reported by ``advance``
            for index, (source, target) in enumerate(text, first + 1):
                if has_empty_side(source, target):
                    report.empty += 1
                else:
                    digest = pair_hash(source, target)
                    finder.add(digest, index - 1)
                    report.in_validation += validation.meets(digest)
                    report.in_test += test.meets(digest)
                    report.equal_sides += source == target
                    report.in_pieces += IN_PIECES in source or IN_PIECES in target
                if index % PAIRS_BETWEEN_REPORTS == 0:
                    advance(index - first - num_pairs, text.num_bytes - num_bytes)
                    num_pairs, num_bytes = index - first, text.num_bytes
            report.pairs_read = index - first
            advance(report.pairs_read - num_pairs, text.num_bytes - num_bytes)
            report.invalid_utf8 = text.num_invalid
        self._mark_repeated(finder)

    @property
    def num_text_pairs(self) -> int:
        """The number of pairs that ``text_pairs`` yields."""
        return sum(
            report.pairs_read - report.empty - self._remove_duplicates * report.duplicates
            for report in self.reports
        )

    def text_pairs(self, *, count_dropped: bool = False) -> Iterator[TextPair]:
        """Yield the pairs that are neither empty nor dropped as duplicates.

        Call ``look_over`` first. Raises UserError if a file has changed since then.
        """
        index = 0
        for corpus, report in enumerate(self.reports):
            number = 0
            text = ParallelText(self._plain(report.files))
            for number, (source, target) in enumerate(text, 1):
                _refuse_change(report, number <= report.pairs_read)
                rule = self._rule_broken(source, target, index)
                index += 1
                if rule is None:
                    yield TextPair(corpus, number, source, target)
                elif count_dropped:
                    report.dropped.add(rule, number)
            _refuse_change(report, number == report.pairs_read)

    def _rule_broken(self, source: str, target: str, index: int) -> str | None:
        if has_empty_side(source, target):
            return EMPTY
        return DUPLICATE if self._remove_duplicates and index in self._repeated else None

    def _mark_repeated(self, finder: DuplicateFinder) -> None:
        ends = np.cumsum([report.pairs_read for report in self.reports])
        self._repeated = Marks(int(ends[-1]))
        for indices in finder.repeated():
            self._repeated.add(indices)
            corpora = np.searchsorted(ends, indices, side="right")
            counts = np.bincount(corpora, minlength=len(self.reports))
            for report, count in zip(self.reports, counts, strict=True):
                report.duplicates += int(count)


def _refuse_change(report: CorpusReport, unchanged: bool) -> None:
    if not unchanged:
        raise UserError(
            f"{report.files.source} or {report.files.target} changed while it was read; run again."
        )
