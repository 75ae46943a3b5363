"""Reads the corpora of a recipe one after the other, and counts what it finds in their text."""

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count, groupby, islice, repeat
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nmt_cli.corpus.chunk_pool import ChunkPool
from nmt_cli.corpus.text import cleaning
from nmt_cli.corpus.text.first_pass import (
    ChunkFindings,
    Cleaner,
    CorpusChunk,
    FittingPairs,
    findings_in,
)
from nmt_cli.corpus.text.parallel_text import LineChunk, ParallelText, Texts
from nmt_cli.corpus.tokenizers.normalization import SIDES, Normalizer, Side
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.proposals import any_of
from nmt_cli.recipe.sections.corpora import ParallelFiles
from nmt_cli.recipe.sections.data import DataConfig

PAIRS_WORTH_A_WORKER = 150_000  # checking them takes about as long as starting a process
HELD_OUT_TEXTS = ("validation", "test")
BYTES_OF_A_PAIR = 100  # of text, at least, if little is known


def _take_chosen(item: tuple[CorpusChunk, npt.NDArray[np.int64]]) -> Texts | None:
    """Return the text pairs of a chunk that have copies; None if there are more or fewer pairs."""
    chunk, copies = item
    _, texts = chunk.text_pairs()
    return texts.only(copies > 0) if len(copies) == len(texts.sources) else None


def _count_words(chunk: CorpusChunk, normalizer: Normalizer, sides: Sequence[Side]) -> Counter[str]:
    """Count the words between white space in the normalized ``sides`` of the text pairs."""
    _, texts = chunk.text_pairs()
    counts: Counter[str] = Counter()
    for side, sentences in zip(SIDES, texts[:2], strict=True):
        for sentence in sentences if side in sides else ():
            counts.update(normalizer(sentence, side).split())
    return counts


class CorpusReport:
    """What was found in one corpus, and what was dropped from it."""

    def __init__(self, files: ParallelFiles) -> None:
        self.files = files
        self.pairs_read = self.pairs_kept = 0
        self.empty = self.equal_sides = self.in_pieces = 0
        self.duplicates: int | None = None  # None if they were not looked for
        self.filtered = self.repeated = 0  # pairs left out by filters, and then because they repeat
        self.also_in: Counter[str] = Counter()  # pairs that are equal to some of a held-out text
        self.like = {name: cleaning.ListedPairs() for name in HELD_OUT_TEXTS}
        self.sharing: Counter[str] = Counter()  # pairs with a sentence of a held-out text
        self.invalid_utf8: dict[Side, int] = {"source": 0, "target": 0}  # lines
        self.dropped = cleaning.DroppedLines()
        self.links = self.pairs_of_other_words = 0  # only counted if the corpus has alignments
        self.are_single: Counter[bool] = Counter()  # whether sources are one sentence, of a sample

    def add(self, found: ChunkFindings, lines: LineChunk) -> None:
        """Count what was found in ``lines``."""
        self.pairs_read += lines.num_lines
        self.empty += found.num_blank
        self.equal_sides += found.num_equal
        self.in_pieces += found.num_in_pieces
        for name, of_text in found.held_out.items():
            self.also_in[name] += len(of_text.equal)
            self.like[name].add(of_text.similar, lines)
            self.sharing[name] += len(of_text.sharing)
        if found.broken is not None:
            self.filtered += int((found.broken != cleaning.KEPT).sum())
            self.dropped.add(found.broken, lines)
        for side in SIDES:
            self.invalid_utf8[side] += found.num_invalid[side]

    def count(self, broken: npt.NDArray[np.int8], lines: LineChunk) -> None:
        """Count the encoded pairs of ``lines`` by the rule that each broke, or ``KEPT``."""
        self.pairs_kept += int((broken == cleaning.KEPT).sum())
        self.dropped.add(broken, lines)

    @property
    def paths(self) -> dict[str, Path]:
        """The files of the corpus."""
        return {**self.files.paths, **self.files.of_pairs}

    def as_manifest(self, hashes: Mapping[Path, str]) -> dict[str, Any]:
        """Return the manifest's entry for this corpus; ``hashes`` are those of its files."""
        entry: dict[str, Any] = {
            **files_as_manifest(self.paths, hashes),
            "pairs_read": self.pairs_read,
            "pairs_kept": self.pairs_kept,
            "dropped": self.dropped.as_manifest(),
            "found": {
                "duplicates": self.duplicates,
                "equal_sides": self.equal_sides,
                **{f"also_in_{name}": self.also_in[name] for name in HELD_OUT_TEXTS},
                "in_pieces": self.in_pieces,
                "one_sentence": {"lines": self.are_single[True], "of": self.are_single.total()},
                "lines_with_invalid_utf8": self.invalid_utf8,
                **{f"like_{name}": of.as_manifest() for name, of in self.like.items() if of.count},
            },
        }
        if "alignments" in self.paths:
            entry["links"] = self.links
            entry["found"]["pairs_of_other_words"] = self.pairs_of_other_words
        return entry


def files_as_manifest(paths: Mapping[str, Path], hashes: Mapping[Path, str]) -> dict[str, Any]:
    """Return path, hash and size of each file for the manifest."""
    return {
        **{name: str(path) for name, path in paths.items()},
        **{f"{name}_sha256": hashes[path] for name, path in paths.items()},
        **{f"{name}_bytes": path.stat().st_size for name, path in paths.items()},
    }


class ParallelCorpora:
    """Corpora that are read several times: to check them, to train a tokenizer, to encode them."""

    def __init__(
        self,
        files: Sequence[ParallelFiles],
        pool: ChunkPool,
        *,
        data: DataConfig | None = None,
        plain: Callable[[ParallelFiles], ParallelFiles] = lambda files: files,
    ) -> None:
        """Take the corpora. If they are those of ``data.train``, its filters are applied.

        ``plain`` returns the text files of a corpus that is no text.
        """
        self._pool, self._plain = pool, plain
        self.cleaner = Cleaner(data) if data is not None else None
        self.reports = [CorpusReport(parallel_files) for parallel_files in files]
        self._left_out: dict[int, cleaning.BitSet] = {}  # by rule; a pair has at most one
        self._in_groups = cleaning.BitSet()  # pairs that repeat each other
        self._num_blank = array("I")  # pairs of each chunk
        self._workers = 1

    def read_first(
        self,
        directory: Path,
        advance: Callable[[int, int], None],
        held_out: Mapping[str, cleaning.HeldOut] | None = None,
    ) -> None:
        """Read every corpus once, to check its files, to filter it and to count overlaps.

        Repeated pairs are looked for only if they are to be removed. Their hashes are written to
        ``directory`` if they do not fit in memory. ``advance`` is called with the numbers of pairs
        and bytes read since its last call. ``held_out`` has the pairs to look for.
        Raises UserError if a file cannot be read, is damaged or empty, if the files of a corpus
        have different numbers of lines, or if a link is not between words of its sentences.
        """
        held_out = held_out or {}
        finders = {} if self.cleaner is None else _finders(self.cleaner, directory)
        work = partial(findings_in, held_out=held_out, cleaner=self.cleaner)
        self._workers = self._pool.useful_workers(self._estimated_pairs(), PAIRS_WORTH_A_WORKER)
        bytes_read = [0 for _ in self.reports]
        for chunk, found in self._pool.in_order(self._all_chunks(), work, self._workers):
            report = self.reports[chunk.corpus]
            if found.wrong_links is not None:
                line, problem = found.wrong_links
                number = chunk.lines.num_before + line + 1
                raise UserError(f"{report.paths['alignments']}:{number}: {problem}.")
            report.add(found, chunk.lines)
            self._num_blank.append(found.num_blank)
            for name, of_text in found.held_out.items():
                held_out[name].count(of_text)
            if found.broken is not None:
                places = np.flatnonzero(found.broken != cleaning.KEPT)
                bits = self._left_out.setdefault(cleaning.COUNTED, cleaning.BitSet())
                bits.add(chunk.first_index + places)
            # Only those of a memory have records of a rule that only counts, the last one.
            for finder, records in zip(finders.values(), found.records, strict=False):
                finder.add(records)
            advance(chunk.lines.num_lines, chunk.lines.num_bytes - bytes_read[chunk.corpus])
            bytes_read[chunk.corpus] = chunk.lines.num_bytes
        for rule, finder in finders.items():
            is_removed = self.cleaner is not None and rule in self.cleaner.removed
            numbers = self._mark_repeated(rule, finder, is_removed=is_removed)
            for report, number in zip(self.reports, numbers, strict=True):
                if rule == cleaning.DUPLICATE and (is_removed or report.files.memory is not None):
                    report.duplicates = number

    def choose_again(
        self,
        directory: Path,
        fitting: Callable[[CorpusChunk], FittingPairs],
        advance: Callable[[int], None],
    ) -> bool:
        """Choose anew which of repeated pairs stay: of those that ``fitting`` returns.

        Returns whether others may stay than before. Hashes are written to ``directory`` if they do
        not fit in memory. ``advance`` is called with numbers of pairs. Raises UserError if a file
        has changed since ``read_first``.
        """
        if self.cleaner is None or not any(report.repeated for report in self.reports):
            return False
        finders, num_others = _finders(self.cleaner, directory), 0
        chunks = self._repeated_chunks()
        for chunk, found in self._pool.in_order(chunks, fitting, self._workers):
            advance(chunk.lines.num_lines)
            num_others += found.num_others
            for rule, records in zip(self.cleaner.removed, found.records, strict=False):
                finders[rule].add(records)
        if not num_others:
            return False
        for report in self.reports:
            report.repeated = 0
        for rule in self.cleaner.removed:
            self._left_out.pop(cleaning.RULES.index(rule))
        for rule in self.cleaner.removed:
            self._mark_repeated(rule, finders[rule], is_removed=True)
        return True

    @property
    def num_text_pairs(self) -> int:
        """The number of pairs that are neither empty nor filtered nor repeated."""
        return sum(self.text_sizes)

    @property
    def text_sizes(self) -> list[int]:
        """The number of such pairs of each corpus."""
        return [
            report.pairs_read - report.empty - report.filtered - report.repeated
            for report in self.reports
        ]

    def chosen(self, copies: Iterator[int]) -> Iterator[tuple[str, str]]:
        """Yield each text pair as often as the next number of ``copies``.

        Text pairs are those that are neither empty nor filtered nor repeated. Raises UserError if
        a file has changed since ``read_first``.
        """

        def with_copies() -> Iterator[tuple[CorpusChunk, npt.NDArray[np.int64]]]:
            for chunk, num_blank in zip(self.chunks(), self._num_blank, strict=True):
                num_texts = chunk.lines.num_lines - num_blank
                if chunk.left_out is not None:
                    num_texts -= int((chunk.left_out != cleaning.KEPT).sum())
                of_chunk = np.fromiter(islice(copies, num_texts), np.int64)
                if of_chunk.any():
                    yield chunk, of_chunk

        chosen = self._pool.in_order(with_copies(), _take_chosen, self._workers)
        for (chunk, of_chunk), texts in chosen:
            _refuse_change(self.reports[chunk.corpus], texts is not None)
            if texts is not None:
                pairs = zip(texts.sources, texts.targets, strict=True)
                for pair, number in zip(pairs, of_chunk[of_chunk > 0].tolist(), strict=True):
                    yield from repeat(pair, number)
        self._pool.end_processes()  # the trainer, which now has the text, may need the memory

    def count_words(self, data: DataConfig, sides: Sequence[Side]) -> Counter[str]:
        """Return how often each word between white space occurs in the normalized ``sides``.

        Raises UserError if a file has changed since ``read_first``.
        """
        numbers: defaultdict[str, int] = defaultdict(count().__next__)  # of the words seen
        totals = np.zeros(0, dtype=np.int64)
        work = partial(_count_words, normalizer=Normalizer(data), sides=sides)
        for _, counts in self._pool.in_order(self.chunks(), work, self._workers):
            # Counter.update would take ten times as long, and only this process can do it.
            places = np.fromiter(map(numbers.__getitem__, counts), np.int64, len(counts))
            totals.resize(max(len(totals), len(numbers)), refcheck=False)
            totals[places] += np.fromiter(counts.values(), np.int64, len(counts))
        return Counter(dict(zip(numbers, totals.tolist(), strict=True)))

    def chunks(self) -> Iterator[CorpusChunk]:
        """Return all lines. Call ``read_first`` first.

        Raises UserError if a file has changed since then.
        """
        return map(self._without_left_out, self._unchanged_chunks())

    def _unchanged_chunks(self) -> Iterator[CorpusChunk]:
        for corpus, chunks in groupby(self._all_chunks(), key=attrgetter("corpus")):
            report, num_read = self.reports[corpus], 0
            for chunk in chunks:
                num_read += chunk.lines.num_lines
                _refuse_change(report, num_read <= report.pairs_read)
                yield chunk
            _refuse_change(report, num_read == report.pairs_read)

    def _all_chunks(self) -> Iterator[CorpusChunk]:
        """Yield all lines of all corpora, also those that are left out."""
        first_index = 0
        for corpus, report in enumerate(self.reports):
            for lines in ParallelText(self._plain(report.files)).chunks():
                yield CorpusChunk(corpus, first_index + lines.num_before, lines, left_out=None)
            first_index += lines.num_before + lines.num_lines

    def _estimated_pairs(self) -> int:
        """Return about how many pairs there are, by the sizes of the files."""
        plain = [self._plain(report.files) for report in self.reports]
        paths = [path for files in plain for path in files.paths.values()]
        return sum(path.stat().st_size for path in paths if path.is_file()) // BYTES_OF_A_PAIR

    def _without_left_out(self, chunk: CorpusChunk) -> CorpusChunk:
        if not self._left_out:
            return chunk
        indices = chunk.first_index + np.arange(chunk.lines.num_lines)
        left_out = np.full(chunk.lines.num_lines, cleaning.KEPT, dtype=np.int8)
        for rule, bits in self._left_out.items():
            left_out[bits.have(indices)] = rule
        return chunk._replace(left_out=left_out)

    def _repeated_chunks(self) -> Iterator[CorpusChunk]:
        """Yield the chunks that have pairs in groups of repeated ones, without all other pairs."""
        for chunk in self._unchanged_chunks():
            indices = chunk.first_index + np.arange(chunk.lines.num_lines)
            in_groups = self._in_groups.have(indices)
            if in_groups.any():
                left_out = np.where(in_groups, cleaning.KEPT, cleaning.COUNTED).astype(np.int8)
                yield chunk._replace(left_out=left_out)

    def _mark_repeated(
        self, rule: str, finder: cleaning.DuplicateFinder, *, is_removed: bool
    ) -> list[int]:
        """Mark the pairs that repeat others, if they are removed; return their number by corpus."""
        ends = np.cumsum([report.pairs_read for report in self.reports])
        bits = cleaning.BitSet(int(ends[-1]))
        counts = np.zeros(len(self.reports), dtype=np.int64)
        parts = finder.parts()
        workers = min(self._workers, len(parts))
        work = partial(cleaning.repeated_in, dtype=finder.dtype)
        for _, repeated in self._pool.in_order(parts, work, workers):
            if is_removed:
                self._in_groups.add(np.concatenate(repeated))
            indices = repeated.others
            for counted in self._left_out.values():
                indices = indices[~counted.have(indices)]
            bits.add(indices)
            corpora = np.searchsorted(ends, indices, side="right")
            counts += np.bincount(corpora, minlength=len(self.reports))
        if is_removed:
            self._left_out[cleaning.RULES.index(rule)] = bits
            for report, num_repeated in zip(self.reports, counts.tolist(), strict=True):
                report.repeated += num_repeated
        return counts.tolist()


def _finders(cleaner: Cleaner, directory: Path) -> dict[str, cleaning.DuplicateFinder]:
    dtype, finders = cleaning.SCORED_RECORD if cleaner.has_scores else cleaning.RECORD, {}
    for rule in cleaner.compared:
        (directory / rule).mkdir(parents=True)
        finders[rule] = cleaning.DuplicateFinder(directory / rule, dtype=dtype)
    return finders


def _refuse_change(report: CorpusReport, unchanged: bool) -> None:
    if not unchanged:
        names = any_of(list(map(str, report.files.paths.values())))
        raise UserError(f"{names} changed while it was read; run again.")
