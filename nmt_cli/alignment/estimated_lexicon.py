"""A lexicon from sentence pairs: the pieces that IBM model 2 expects to translate each piece."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from nmt_cli.alignment import ibm_model2
from nmt_cli.alignment.ibm_model2 import MOST_CELLS
from nmt_cli.alignment.pair_cells import Array, NumberedPairs
from nmt_cli.corpus.binarized import BinarizedText
from nmt_cli.corpus.chunk_pool import ChunkPool
from nmt_cli.corpus.lexicon import Lexicon
from nmt_cli.corpus.prepared import PreparedCorpus
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.recipe.translation_options import NUM_FREQUENT, NUM_TARGETS

LEAST_PROBABILITY = 1e-4  # of a target piece; what is less probable is chance
ITERATIONS = 5
SENTENCES_AT_ONCE = 1 << 14

IdPair = tuple[Sequence[int], Sequence[int]]  # pieces of source and target, without marks


def make_lexicon(
    pairs: Iterable[IdPair],
    source_size: int,
    target_size: int,
    *,
    num_frequent: int = NUM_FREQUENT,
    num_targets: int = NUM_TARGETS,
    workers: int | None = None,
) -> Lexicon:
    """Return the lexicon of ``pairs``, whose sides have vocabularies of these sizes.

    It has the ``num_frequent`` most frequent pieces of the target and, for each piece of the
    source, up to ``num_targets`` that translate it most probably. ``workers`` processes estimate
    that, by default as many as save time. Raises UserError if no pair has pieces on both sides.
    """
    with (
        TemporaryDirectory(prefix="nmt-cli-lexicon-") as name,
        ChunkPool(Path(name), workers) as pool,
    ):
        counts, lengths = np.zeros(target_size, np.int64), Counter[tuple[int, int]]()
        with logs.progress("Reading", "pairs") as counter:
            alignable = (pair for pair in pairs if 0 < len(pair[0]) * len(pair[1]) <= MOST_CELLS)
            for number, chunk in enumerate(NumberedPairs.in_chunks(alignable, MOST_CELLS)):
                ibm_model2.write_pairs(Path(name), number, chunk)
                counts += np.bincount(chunk.target_words, minlength=target_size)
                both = chunk.source_lengths.tolist(), chunk.target_lengths.tolist()
                lengths.update(zip(*both, strict=True))
                counter.advance(len(chunk.source_lengths))
        if not lengths:
            raise UserError("no sentence pair has pieces on both sides, so there is no lexicon.")
        num_processes = pool.useful_workers(lengths.total(), ibm_model2.PAIRS_WORTH_A_WORKER)
        sizes = source_size, target_size
        aligner = ibm_model2.WordAligner(Path(name), lengths, sizes, pool, num_processes)
        with logs.progress("Aligning", "chunks") as counter:
            counter.expect((ITERATIONS + 1) * aligner.num_chunks, False)
            aligner.estimate(ITERATIONS, counter.advance)
        translations = aligner.translations
    frequent = np.argsort(-counts, kind="stable")[: min(num_frequent, np.count_nonzero(counts))]
    by_source = _most_probable(*translations, source_size, num_targets)
    return Lexicon.of(frequent.tolist(), by_source, target_size)


def prepared_pairs(prepared: PreparedCorpus) -> Iterator[IdPair]:
    """Yield the training pairs of a prepared text as ids of pieces, without marks of the end."""
    sides = (_sentences(side) for side in (prepared.source, prepared.target))
    yield from zip(*sides, strict=True)


def _sentences(text: BinarizedText) -> Iterator[list[int]]:
    for first in range(0, len(text), SENTENCES_AT_ONCE):
        some = text.gather(np.arange(first, min(first + SENTENCES_AT_ONCE, len(text))))
        yield from (tokens[:-1] for tokens in some.lists())


def _most_probable(
    sources: Array, targets: Array, probabilities: Array, source_size: int, number: int
) -> Iterator[list[int]]:
    """Yield the most probable targets of each source piece."""
    kept = probabilities >= LEAST_PROBABILITY
    sources, targets, probabilities = sources[kept], targets[kept], probabilities[kept]
    order = np.lexsort((targets, -probabilities, sources))
    bounds = np.searchsorted(sources[order], np.arange(source_size + 1))
    for first, end in pairwise(bounds.tolist()):
        yield targets[order[first : min(end, first + number)]].tolist()
