"""Reads the corpora of a recipe one after the other, and counts what it finds in their text."""

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nmt_cli.corpus.chunk_pool import ChunkPool
from nmt_cli.corpus.text.cleaning import (
    DUPLICATE,
    EMPTY,
    KEPT,
    RULES,
    DroppedLines,
    DuplicateFinder,
    HeldOut,
    Marks,
    hash_records,
    repeated_in,
)
from nmt_cli.corpus.text.parallel_text import Chunk, ParallelText, Texts
from nmt_cli.corpus.tokenizers.normalization import SIDES, Normalizer, Side
from nmt_cli.files.lines import VISIBLE
from nmt_cli.messages.errors import UserError
from nmt_cli.recipe.data_config import DataConfig, ParallelFiles

PAIRS_WORTH_A_WORKER = 150_000  # looking over them takes about as long as starting a process
BYTES_OF_A_PAIR = 100  # of text, at least, if little is known
IN_PIECES = "@@ "  # subword-nmt ends a piece with it if the word goes on in the next piece


class CorpusChunk(NamedTuple):
    """Lines of one of the corpora, and which of them repeat an earlier pair of any corpus."""

    corpus: int
    first_index: int  # of its first pair among those of all corpora
    lines: Chunk
    repeated: npt.NDArray[np.bool_] | None  # None if repeated pairs are kept

    def text_pairs(self) -> tuple[npt.NDArray[np.int8], Texts]:
        """Return the rule that each pair breaks, or ``KEPT``, and the pairs that break none.

        The rules are ``EMPTY`` and ``DUPLICATE``; those about lengths are for encoded pairs.
        """
        texts = self.lines.texts()
        broken = np.full(self.lines.num_lines, KEPT, dtype=np.int8)
        if self.repeated is not None:
            broken[self.repeated] = RULES.index(DUPLICATE)
        broken[blank_pairs(texts)] = RULES.index(EMPTY)
        if (broken == KEPT).all():
            return broken, texts
        kept = np.flatnonzero(broken == KEPT).tolist()
        sources, targets = ([side[place] for place in kept] for side in texts[:2])
        return broken, Texts(sources, targets, texts.num_invalid)


class ChunkFindings(NamedTuple):
    """What was found in the lines of a chunk."""

    num_blank: int
    num_equal: int  # pairs whose sides are equal
    num_in_pieces: int
    num_invalid: dict[Side, int]
    in_validation: list[bytes]  # hashes of the pairs that are held out
    in_test: list[bytes]
    records: npt.NDArray[np.void] | None  # of the hashes of all pairs, for ``DuplicateFinder``


class LookingOver(NamedTuple):
    """What a process needs to look over chunks."""

    validation: HeldOut
    test: HeldOut
    hashes_pairs: bool

    def start(self) -> Callable[[CorpusChunk], ChunkFindings]:
        """Return the function that looks over a chunk."""
        return self._look_over

    def _look_over(self, chunk: CorpusChunk) -> ChunkFindings:
        broken, (sources, targets, num_invalid) = chunk.text_pairs()
        pairs, records = list(zip(sources, targets, strict=True)), None
        if self.hashes_pairs:
            indices = chunk.first_index + np.flatnonzero(broken == KEPT)
            records = hash_records(sources, targets, indices)
        return ChunkFindings(
            num_blank=len(broken) - len(pairs),
            num_equal=sum(source == target for source, target in pairs),
            num_in_pieces=sum(
                IN_PIECES in source or IN_PIECES in target for source, target in pairs
            ),
            num_invalid=num_invalid,
            in_validation=self.validation.found(sources, targets),
            in_test=self.test.found(sources, targets),
            records=records,
        )


class TakingChosen(NamedTuple):
    """Takes the chosen ones of the text pairs of a chunk."""

    def start(self) -> Callable[[tuple[CorpusChunk, npt.NDArray[np.bool_]]], Texts | None]:
        """Return the function that does it; it returns None if there are more or fewer pairs."""
        return self._take

    def _take(self, item: tuple[CorpusChunk, npt.NDArray[np.bool_]]) -> Texts | None:
        chunk, is_chosen = item
        _, texts = chunk.text_pairs()
        if len(is_chosen) != len(texts.sources):
            return None
        places = np.flatnonzero(is_chosen).tolist()
        sources, targets = ([side[place] for place in places] for side in texts[:2])
        return texts._replace(sources=sources, targets=targets)


class CountingWords(NamedTuple):
    """Counts the words between white space in the text pairs of a chunk."""

    data: DataConfig

    def start(self) -> Callable[[CorpusChunk], Counter[str]]:
        """Return the function that counts them in the normalized text."""
        return partial(self._count, Normalizer(self.data))

    @staticmethod
    def _count(normalizer: Normalizer, chunk: CorpusChunk) -> Counter[str]:
        _, texts = chunk.text_pairs()
        counts: Counter[str] = Counter()
        for side, sentences in zip(SIDES, texts[:2], strict=True):
            for sentence in sentences:
                counts.update(normalizer(sentence, side).split())
        return counts


class LookingForRepeated(NamedTuple):
    """Finds the repeated pairs in a part of a ``DuplicateFinder``."""

    def start(self) -> Callable[["npt.NDArray[np.void] | Path"], npt.NDArray[np.int64]]:
        """Return the function that does it."""
        return repeated_in


def blank_pairs(texts: Texts) -> list[int]:
    """Return the places of the pairs with a blank side; ``is_blank`` for many texts at once."""
    found = VISIBLE.search
    pairs = enumerate(zip(texts.sources, texts.targets, strict=True))
    return [place for place, (s, t) in pairs if found(s) is None or found(t) is None]


class CorpusReport:
    """What was found in one corpus, and what was dropped from it."""

    def __init__(self, files: ParallelFiles) -> None:
        self.files = files
        self.pairs_read = self.pairs_kept = 0
        self.empty = self.equal_sides = self.in_pieces = 0
        self.duplicates: int | None = None  # None if they were not looked for
        self.in_validation = self.in_test = 0
        self.invalid_utf8: dict[Side, int] = {"source": 0, "target": 0}  # lines
        self.dropped = DroppedLines()

    def add(self, found: ChunkFindings, num_pairs: int) -> None:
        """Count what was found in a chunk of ``num_pairs``."""
        self.pairs_read += num_pairs
        self.empty += found.num_blank
        self.equal_sides += found.num_equal
        self.in_pieces += found.num_in_pieces
        self.in_validation += len(found.in_validation)
        self.in_test += len(found.in_test)
        for side in SIDES:
            self.invalid_utf8[side] += found.num_invalid[side]

    def count(self, broken: npt.NDArray[np.int8], first_line: int) -> None:
        """Count encoded pairs of adjacent lines by the rule that each broke, or ``KEPT``."""
        self.pairs_kept += int((broken == KEPT).sum())
        self.dropped.add(broken, first_line)

    def facts(self, hashes: Mapping[Path, str]) -> dict[str, Any]:
        """Return the manifest's entry for this corpus; ``hashes`` are those of its two files."""
        return {
            "source": str(self.files.source),
            "target": str(self.files.target),
            "source_sha256": hashes[self.files.source],
            "target_sha256": hashes[self.files.target],
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
        pool: ChunkPool,
        *,
        remove_duplicates: bool,
        plain: Callable[[ParallelFiles], ParallelFiles] = lambda files: files,
    ) -> None:
        """Take the corpora; ``plain`` returns the text files of a corpus that is no text."""
        self._pool, self._plain = pool, plain
        self.reports = [CorpusReport(parallel_files) for parallel_files in files]
        self._remove_duplicates = remove_duplicates
        self._repeated: Marks | None = None
        self._num_blank = array("I")  # pairs of each chunk
        self._workers = 1

    def look_over(
        self,
        directory: Path,
        advance: Callable[[int, int], None],
        *,
        validation: HeldOut | None = None,
        test: HeldOut | None = None,
    ) -> None:
        """Read every corpus once, to check its files and to count repeated pairs and overlaps.

        Repeated pairs are looked for only if they are to be removed. Their hashes are written to
        ``directory`` if they do not fit in memory. ``advance`` is called with the numbers of pairs
        and bytes read since its last call. ``validation`` and ``test`` hold the pairs to look for.
        Raises UserError if a file cannot be read, is damaged or empty, or if the two files of a
        corpus have different numbers of lines.
        """
        finder = DuplicateFinder(directory)
        job = LookingOver(validation or HeldOut(), test or HeldOut(), self._remove_duplicates)
        self._workers = self._pool.useful_workers(self._estimated_pairs(), PAIRS_WORTH_A_WORKER)
        num_bytes: list[int] = []  # read since the last call of ``advance``
        for chunk, found in self._pool.in_order(
            self._all_chunks(num_bytes.append), job, self._workers
        ):
            self.reports[chunk.corpus].add(found, chunk.lines.num_lines)
            self._num_blank.append(found.num_blank)
            job.validation.count(found.in_validation)
            job.test.count(found.in_test)
            if found.records is not None:
                finder.add(found.records)
            advance(chunk.lines.num_lines, sum(num_bytes))
            num_bytes.clear()
        if self._remove_duplicates:
            self._mark_repeated(finder)

    @property
    def num_text_pairs(self) -> int:
        """The number of pairs that are neither empty nor repeated."""
        return sum(
            report.pairs_read - report.empty - (report.duplicates or 0) for report in self.reports
        )

    def chosen(self, flags: Iterator[bool]) -> Iterator[tuple[str, str]]:
        """Yield the text pairs whose flag, the next one of ``flags``, is true.

        Text pairs are those that are neither empty nor repeated. Raises UserError as ``chunks``
        does.
        """

        def with_flags() -> Iterator[tuple[CorpusChunk, npt.NDArray[np.bool_]]]:
            for chunk, num_blank in zip(self.chunks(), self._num_blank, strict=True):
                num_repeated = 0 if chunk.repeated is None else int(chunk.repeated.sum())
                num_texts = chunk.lines.num_lines - num_blank - num_repeated
                is_chosen = np.fromiter(islice(flags, num_texts), np.bool_)
                if is_chosen.any():
                    yield chunk, is_chosen

        for (chunk, _), texts in self._pool.in_order(with_flags(), TakingChosen(), self._workers):
            _refuse_change(self.reports[chunk.corpus], texts is not None)
            if texts is not None:
                yield from zip(texts.sources, texts.targets, strict=True)
        self._pool.end_processes()  # the trainer, which now has the text, may need the memory

    def count_words(self, data: DataConfig) -> Counter[str]:
        """Return how often each word between white space occurs in the normalized text pairs.

        Raises UserError as ``chunks`` does.
        """
        numbers: defaultdict[str, int] = defaultdict(count().__next__)  # of the words seen
        totals = np.zeros(0, dtype=np.int64)
        job = CountingWords(data)
        for _, counts in self._pool.in_order(self.chunks(), job, self._workers):
            # Counter.update would take ten times as long, and only this process can do it.
            places = np.fromiter(map(numbers.__getitem__, counts), np.int64, len(counts))
            totals.resize(max(len(totals), len(numbers)), refcheck=False)
            totals[places] += np.fromiter(counts.values(), np.int64, len(counts))
        return Counter(dict(zip(numbers, totals.tolist(), strict=True)))

    def chunks(self) -> Iterator[CorpusChunk]:
        """Yield all lines. Call ``look_over`` first.

        Raises UserError if a file has changed since then.
        """
        index = 0
        for corpus, report in enumerate(self.reports):
            num_read = 0
            for chunk in self._chunks_of(corpus, index):
                num_read += chunk.lines.num_lines
                _refuse_change(report, num_read <= report.pairs_read)
                if self._repeated is not None:
                    part = slice(chunk.first_index, chunk.first_index + chunk.lines.num_lines)
                    chunk = chunk._replace(repeated=self._repeated[part])
                yield chunk
            _refuse_change(report, num_read == report.pairs_read)
            index += num_read

    def _chunks_of(
        self, corpus: int, first_index: int, advance: Callable[[int], None] = lambda num_bytes: None
    ) -> Iterator[CorpusChunk]:
        """Yield the lines of one corpus; ``advance`` gets the bytes read since its last call."""
        text, num_bytes = ParallelText(self._plain(self.reports[corpus].files)), 0
        for lines in text.chunks():
            advance(text.num_bytes - num_bytes)
            num_bytes = text.num_bytes
            yield CorpusChunk(corpus, first_index + lines.num_before, lines, repeated=None)

    def _all_chunks(self, advance: Callable[[int], None]) -> Iterator[CorpusChunk]:
        index = 0
        for corpus in range(len(self.reports)):
            for chunk in self._chunks_of(corpus, index, advance):
                yield chunk
            index = chunk.first_index + chunk.lines.num_lines

    def _estimated_pairs(self) -> int:
        """Return about how many pairs there are, by the sizes of the files."""
        plain = [self._plain(report.files) for report in self.reports]
        paths = [path for files in plain for path in (files.source, files.target)]
        return sum(path.stat().st_size for path in paths if path.is_file()) // BYTES_OF_A_PAIR

    def _mark_repeated(self, finder: DuplicateFinder) -> None:
        ends = np.cumsum([report.pairs_read for report in self.reports])
        self._repeated = Marks(int(ends[-1]))
        counts = np.zeros(len(self.reports), dtype=np.int64)
        parts = finder.parts()
        workers = min(self._workers, len(parts))
        for _, indices in self._pool.in_order(parts, LookingForRepeated(), workers):
            self._repeated.add(indices)
            corpora = np.searchsorted(ends, indices, side="right")
            counts += np.bincount(corpora, minlength=len(self.reports))
        for report, num_repeated in zip(self.reports, counts.tolist(), strict=True):
            report.duplicates = num_repeated


def _refuse_change(report: CorpusReport, unchanged: bool) -> None:
    if not unchanged:
        raise UserError(
            f"{report.files.source} or {report.files.target} changed while it was read; run again."
        )
