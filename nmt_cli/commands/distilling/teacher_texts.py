"""What the teacher translates: each different line once, and what augmentation makes of it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from nmt_cli.commands.distilling.distillation import Distillation, TeacherText
from nmt_cli.corpus.augmenter import drawn_changes, read_glossaries
from nmt_cli.corpus.text import cleaning
from nmt_cli.corpus.text.augmentation import MOST_MERGED, Augmenting, TextPair
from nmt_cli.corpus.text.links import links_within
from nmt_cli.corpus.text.parallel_text import PAIRS_IN_CHUNK, ParallelText
from nmt_cli.files.atomic_files import Partial, sha256
from nmt_cli.files.lines import LineTexts, is_blank, one_line
from nmt_cli.files.text_files import open_text
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.recipe.sections.corpora import Corpus

Pair = tuple[str, str]  # a source line, and its reference, which may be empty


def texts_from(job: Distillation) -> dict[str, Any]:
    """Return what the texts depend on."""
    config, recipe = job.config, job.recipe
    corpora = [
        {
            "files": [sha256(path) for path in corpus.paths.values()],
            **corpus.model_dump(mode="json", include={"columns", "tag", "augment"}),
        }
        for corpus in recipe.data.train
    ]
    monolingual = [{"files": [sha256(one.source)], "tag": one.tag} for one in config.monolingual]
    drawn = [recipe.training.seed, config.augmented_copies] if recipe.data.is_augmented else None
    return {"corpora": corpora, "monolingual": monolingual, "drawn": drawn}


def write_texts(job: Distillation, partial: Partial) -> None:
    """Write the lines to translate, with their references, which may be empty."""
    repeated = _repeated_lines(job)
    index = num_kept = 0
    for text in job.texts:
        with pair_writer(partial.path, text) as write:
            for chunk in _in_chunks(_lines_of(text, job)):
                is_repeated = repeated.have(np.arange(index, index + len(chunk)))
                index += len(chunk)
                for (source, target), is_left_out in zip(chunk, is_repeated, strict=True):
                    if not is_left_out:
                        num_kept += 1
                        write(source, target)
    if not num_kept:
        raise UserError(f"{job.texts[0].path} has no line to translate.")
    logs.info(f"{num_kept:,} different lines of {index:,} to translate.")


def _repeated_lines(job: Distillation) -> cleaning.BitSet:
    """Return which lines of all texts together repeat another one.

    The first that has a reference stays, or the first if none has.
    """
    index = 0
    with TemporaryDirectory() as folder, logs.progress("reading", "lines") as counter:
        finder = cleaning.DuplicateFinder(Path(folder), dtype=cleaning.SCORED_RECORD)
        for text in job.texts:
            for chunk in _in_chunks(_lines_of(text, job)):
                indices = np.arange(index, index + len(chunk))
                lines = [source for source, _ in chunk]
                tags = [text.tag or ""] * len(chunk)
                with_reference = np.array([bool(target) for _, target in chunk], np.float64)
                finder.add(
                    cleaning.hash_records(cleaning.DUPLICATE, tags, lines, indices, with_reference)
                )
                index += len(chunk)
                counter.advance(len(chunk))
        repeated = cleaning.BitSet(index)
        for part in finder.parts():
            repeated.add(cleaning.repeated_in(part, finder.dtype).others)
    return repeated


@contextmanager
def pair_writer(folder: Path, text: TeacherText) -> Iterator[Callable[[str, str], None]]:
    """Yield what writes a source line and its target to the files of ``text`` in ``folder``."""
    with (folder / text.source).open("wb") as sources, (folder / text.target).open("wb") as targets:

        def write(source: str, target: str) -> None:
            sources.write(f"{source}\n".encode())
            targets.write(f"{target}\n".encode())

        yield write


def lines_in(path: Path) -> Iterator[str]:
    """Yield the lines of a text file. Raises UserError if it cannot be read."""
    with open_text(path) as stream:
        yield from LineTexts(stream)


def _in_chunks(pairs: Iterator[Pair]) -> Iterator[list[Pair]]:
    while chunk := list(islice(pairs, PAIRS_IN_CHUNK)):
        yield chunk


def _lines_of(text: TeacherText, job: Distillation) -> Iterator[Pair]:
    """Yield the lines that are not blank, each followed by its changed copies."""
    if text.corpus is None:
        yield from ((one_line(line), "") for line in lines_in(text.path) if not is_blank(line))
        return
    augment = text.corpus.augment.model_copy(update={"noise": 0.0})
    augmenting = None
    if augment.probabilities and job.config.augmented_copies:
        glossary = read_glossaries(job.recipe).get(augment.glossary) if augment.glossary else None
        symbols = job.recipe.tokenizer.user_defined_symbols
        augmenting = Augmenting(augment, symbols, glossary)
    files = text.corpus.with_languages(job.recipe.data.languages)
    for chunk in ParallelText(files).chunks():
        texts = chunk.texts()
        pairs = list(zip(map(one_line, texts.sources), map(one_line, texts.targets), strict=True))
        copies = {}
        if augmenting is not None:
            words = _words_of(text.corpus, pairs, texts.links or [""] * len(pairs))
            key = job.recipe.training.seed, text.number
            copies = _changed_copies(augmenting, words, chunk.num_before, key, job)
        for place, (source, target) in enumerate(pairs):
            if not is_blank(source):
                yield source, "" if is_blank(target) else target
                yield from copies.get(place, ())


def _words_of(corpus: Corpus, pairs: Sequence[Pair], links: Sequence[str]) -> list[TextPair]:
    found = []
    for (source, target), of_pair in zip(pairs, links, strict=True):
        of_source, of_target = source.split(), target.split()
        try:
            linked = links_within(of_pair, len(of_source), len(of_target))
        except ValueError as error:
            raise UserError(f"{corpus.alignments}: {error}.") from None
        found.append(TextPair(of_source, of_target, linked))
    return found


def _changed_copies(
    augmenting: Augmenting,
    words: Sequence[TextPair],
    num_before: int,
    key: tuple[int, int],
    job: Distillation,
) -> dict[int, list[Pair]]:
    """Return the copies of pairs that were drawn to be changed, by the places of the pairs.

    They are those of the first epochs of a training that draws them itself, except that only
    pairs of one chunk are merged.
    """
    found: dict[int, list[Pair]] = {}
    lines = np.arange(num_before, num_before + len(words))
    for copy in range(job.config.augmented_copies):
        for place, kinds, draw in drawn_changes(augmenting, lines, (*key, copy)):
            number = draw.randint(1, MOST_MERGED) if "merge" in kinds else 0
            following = words[place + 1 : place + 1 + number]
            changed = augmenting.changed(words[place], kinds, following, draw)
            if changed != words[place]:
                pair = " ".join(changed.source), " ".join(changed.target)
                found.setdefault(place, []).append(pair)
    return found
