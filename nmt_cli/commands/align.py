"""``nmt-cli align``: the word alignment of each line of two texts."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from nmt_cli.alignment.ibm_model2 import MOST_CELLS, PAIRS_WORTH_A_WORKER, WordAligner, write_pairs
from nmt_cli.alignment.pair_cells import NumberedPairs
from nmt_cli.commands.lines.opened_texts import opened_stream, refuse_to_replace
from nmt_cli.corpus.chunk_pool import ChunkPool
from nmt_cli.corpus.text.parallel_text import ParallelText
from nmt_cli.files.text_forms import refuse_wrong_lines
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.figures import counted
from nmt_cli.recipe.sections.corpora import ParallelFiles


def run(  # noqa: PLR0913 - the options of a command are its parameters
    source: Path,
    target: Path,
    *,
    symmetrization: str,
    iterations: int,
    lowercase: bool = False,
    output_path: Path | None = None,
    force: bool = False,
    workers: int | None = None,
) -> None:
    """Write the links of each line of ``source`` and ``target`` in Pharaoh's format.

    Raises UserError if a text cannot be read, if the texts have different numbers of lines or no
    words; OutputError if the output cannot be written.
    """
    refuse_to_replace((source, target), output_path)
    for path in (source, target):
        refuse_wrong_lines(path)
    with (
        opened_stream(output_path, force=force) as output,
        TemporaryDirectory(prefix="nmt-cli-align-") as name,
        ChunkPool(Path(name), workers) as pool,
    ):
        text = _WordText(
            ParallelText(ParallelFiles(source=source, target=target), is_read_once=True), lowercase
        )
        with logs.progress("Reading", "pairs") as counter:
            for number, pairs in enumerate(NumberedPairs.in_chunks(text, MOST_CELLS)):
                write_pairs(Path(name), number, pairs)
                counter.advance(len(pairs.source_lengths))
        if not text.lengths:
            raise UserError(f"no line of {source} and {target} has words on both sides.")
        text.warn_of_left_out()
        num_processes = pool.useful_workers(sum(text.lengths.values()), PAIRS_WORTH_A_WORKER)
        num_words = len(text.numbers[0]), len(text.numbers[1])
        aligner = WordAligner(Path(name), text.lengths, num_words, pool, num_processes)
        num_chunks = (iterations + 2) * aligner.num_chunks
        with logs.progress("Aligning", "chunks", num_chunks) as counter:
            aligner.estimate(iterations, counter.advance)
            links = _all_lines(aligner.links(symmetrization), counter.advance)
            for has_links in text.are_aligned:
                output.write(f"{next(links) if has_links else ''}\n".encode())
    forward, backward = aligner.tensions
    logs.info(
        f"Aligned {counted(len(text.are_aligned), 'line')}. Tension {forward:.2f} forward, "
        f"{backward:.2f} backward."
    )


class _WordText:
    """The sentence pairs of a text as numbers of words, and what was seen while they were read."""

    def __init__(self, text: ParallelText, lowercase: bool) -> None:
        self._text, self._lowercase = text, lowercase
        self.numbers: tuple[dict[str, int], dict[str, int]] = ({}, {})  # of the words of each side
        self.lengths: Counter[tuple[int, int]] = Counter()  # of the pairs that are aligned
        self.are_aligned = bytearray()  # of each line: 1, or 0 if it gets no links
        self._too_long: list[int] = []

    def __iter__(self) -> Iterator[tuple[list[int], list[int]]]:
        """Yield the pairs that are aligned. Raises UserError if the texts differ in length."""
        for pair in self._text:
            source, target = ((line.lower() if self._lowercase else line).split() for line in pair)
            num_cells = len(source) * len(target)
            is_aligned = 0 < num_cells <= MOST_CELLS
            self.are_aligned.append(is_aligned)
            if num_cells > MOST_CELLS:
                self._too_long.append(len(self.are_aligned))
            if is_aligned:
                self.lengths[len(source), len(target)] += 1
                of_sources, of_targets = self.numbers
                yield (
                    [of_sources.setdefault(word, len(of_sources)) for word in source],
                    [of_targets.setdefault(word, len(of_targets)) for word in target],
                )

    def warn_of_left_out(self) -> None:
        """Warn of bad UTF-8, and of pairs that are too long."""
        if num_bad := sum(self._text.num_invalid.values()):
            logs.warning(f"{counted(num_bad, 'line')} with bad UTF-8, which became U+FFFD.")
        if self._too_long:
            logs.warning(
                f"{counted(len(self._too_long), 'line')} too long for links, the first is line "
                f"{self._too_long[0]:,}: the product of the words of both sides is over "
                f"{MOST_CELLS:,}."
            )


def _all_lines(chunks: Iterable[list[str]], advance: Callable[[int], None]) -> Iterator[str]:
    for lines in chunks:
        yield from lines
        advance(1)
