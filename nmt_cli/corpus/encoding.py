"""Encodes text pairs as token ids, chunk by chunk, and writes them."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nmt_cli.corpus.binarized import dtype_holding, writing_binarized
from nmt_cli.corpus.chunk_pool import ChunkPool
from nmt_cli.corpus.prepared import LINKS
from nmt_cli.corpus.text.cleaning import KEPT, LengthLimits, rules_broken
from nmt_cli.corpus.text.links import links_within
from nmt_cli.corpus.text.looking_over import CorpusChunk
from nmt_cli.corpus.text.parallel_corpora import ParallelCorpora
from nmt_cli.corpus.text.parallel_text import Texts
from nmt_cli.corpus.tokenizers.normalization import SIDES, Side
from nmt_cli.corpus.tokenizers.piece_words import WordFinder
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer, load_tokenizer, tag_ids
from nmt_cli.messages import logs
from nmt_cli.recipe.model_settings import TextSettings, text_settings
from nmt_cli.recipe.schema import Recipe

PAIRS_WORTH_A_WORKER = 20_000  # encoding them takes about as long as starting a process


class EncodedSide(NamedTuple):
    """Sentences of one side, one after the other, each with its ``</s>``."""

    tokens: npt.NDArray[Any]
    lengths: npt.NDArray[np.int64]
    num_unknown: int


class EncodedLinks(NamedTuple):
    """The links of some pairs, one after the other, each a source word and a target word."""

    words: npt.NDArray[Any]
    lengths: npt.NDArray[np.int64]  # numbers of each pair, two for each of its links
    num_of_other_words: int  # pairs whose links were left out: other words than in the text

    @classmethod
    def none(cls, num_pairs: int) -> "EncodedLinks":
        """Return those of pairs without links."""
        return cls(np.zeros(0, np.uint32), np.zeros(num_pairs, np.int64), 0)


class EncodedPairs(NamedTuple):
    """Encoded pairs: the rule that each pair broke, and the tokens of pairs that broke none."""

    broken: npt.NDArray[np.int8]
    source: EncodedSide
    target: EncodedSide
    links: EncodedLinks | None = None  # if the corpus has alignments


class EncodingJob(NamedTuple):
    """What an encoding process needs: the folder and settings of the tokenizer, and the limits."""

    directory: Path
    text: TextSettings
    limits: LengthLimits
    tags: Sequence[str | None] = ()  # of each corpus; empty if no corpus has one
    has_links: bool = False  # whether a corpus has alignments

    def start(self) -> Callable[[CorpusChunk], EncodedPairs]:
        """Load the tokenizer; return the function that encodes a chunk."""
        tokenizer = load_tokenizer(self.directory, self.text)
        tags = [(tag and tag_ids(tag, tokenizer)) or [] for tag in self.tags]
        finders = None
        if self.has_links:
            finders = [WordFinder(tokenizer, self.text, side) for side in SIDES]
        return partial(
            encode_chunk, tokenizer=tokenizer, limits=self.limits, tags=tags, finders=finders
        )


class TokenCounts(NamedTuple):
    """The tokens written for each side, including each ``</s>``, and how many are unknown."""

    tokens: dict[Side, int]
    unknown: dict[Side, int]


class Encoder:
    """Writes parts of the corpus as token ids."""

    def __init__(
        self, recipe: Recipe, directory: Path, vocabulary_size: int, pool: ChunkPool
    ) -> None:
        self._recipe, self._directory = recipe, directory
        self._vocabulary_size, self._pool = vocabulary_size, pool

    def encode(self, part: str, corpora: ParallelCorpora, limits: LengthLimits) -> TokenCounts:
        """Write the token files of ``part``; count kept and dropped pairs in ``corpora``."""
        recipe, num_pairs = self._recipe, corpora.num_text_pairs
        num_read = sum(report.pairs_read for report in corpora.reports)
        has_links = any(report.alignments is not None for report in corpora.reports)
        settings = text_settings(recipe.tokenizer, recipe.data)
        tags = [report.files.tag for report in corpora.reports]
        job = EncodingJob(self._directory, settings, limits, tags, has_links)
        workers = self._pool.useful_workers(num_pairs, PAIRS_WORTH_A_WORKER)
        unknown: dict[Side, int] = dict.fromkeys(SIDES, 0)
        with ExitStack() as stack:
            counter = stack.enter_context(logs.progress(f"encoding {part}", "pairs", num_read))
            writers = {
                side: stack.enter_context(
                    writing_binarized(
                        self._directory,
                        f"{part}.{side}",
                        self._vocabulary_size,
                        recipe.data.max_length + 1,
                    )
                )
                for side in SIDES
            }
            of_links = None
            if has_links:
                # A pair has fewer words than pieces, and at most all links between them.
                longest = recipe.data.max_length
                writing = writing_binarized(self._directory, LINKS, longest, 2 * longest**2)
                of_links = stack.enter_context(writing)
            for chunk, encoded in self._pool.in_order(corpora.chunks(), job, workers, "encoding"):
                report = corpora.reports[chunk.corpus]
                report.count(encoded.broken, chunk.lines)
                for side, written in zip(SIDES, (encoded.source, encoded.target), strict=True):
                    writers[side].append(written.tokens, written.lengths)
                    unknown[side] += written.num_unknown
                if of_links is not None:
                    links = encoded.links or EncodedLinks.none(len(encoded.source.lengths))
                    of_links.append(links.words, links.lengths)
                    report.links += len(links.words) // 2
                    report.pairs_of_other_words += links.num_of_other_words
                counter.advance(chunk.lines.num_lines)
        return TokenCounts({side: writers[side].tokens.count for side in SIDES}, unknown)


def encode_chunk(
    chunk: CorpusChunk,
    tokenizer: Tokenizer,
    limits: LengthLimits,
    tags: Sequence[list[int]] = (),
    finders: Sequence[WordFinder] | None = None,
) -> EncodedPairs:
    """Return the pairs as token ids, without those that break a rule.

    The source of each pair begins with the pieces ``tags[chunk.corpus]``, if there are any.
    ``finders`` find the words of both sides, which links need.
    """
    broken, pairs = chunk.text_pairs()
    sources = tokenizer.encode_batch(pairs.sources, "source")
    tag = tags[chunk.corpus] if tags else []
    if tag:
        sources = [[*tag, *source] for source in sources]
    targets = tokenizer.encode_batch(pairs.targets, "target")
    of_lengths = rules_broken(_lengths(sources), _lengths(targets), limits)
    kept = np.flatnonzero(of_lengths == KEPT)
    broken[broken == KEPT] = of_lengths
    sides = [_encoded_side(side, kept, tokenizer) for side in (sources, targets)]
    links = None
    if pairs.links is not None:
        links = _encoded_links(pairs, kept, sides, finders or (), has_tag=bool(tag))
    return EncodedPairs(broken, sides[0], sides[1], links)


def _encoded_links(
    pairs: Texts,
    kept: npt.NDArray[np.intp],
    sides: Sequence[EncodedSide],
    finders: Sequence[WordFinder],
    *,
    has_tag: bool,
) -> EncodedLinks:
    """Return the links of the ``kept`` ones of ``pairs``; a tag is the first word of each source.

    A pair has none if normalization has joined or separated its words, so that they have other
    numbers than in its text.
    """
    assert pairs.links is not None
    found = [
        finder.words(side.tokens, side.lengths).num_words.tolist()
        for finder, side in zip(finders, sides, strict=True)
    ]
    numbers: list[list[int]] = []
    num_of_other_words = 0
    for place, *num_pieces_words in zip(kept.tolist(), *found, strict=True):
        num_words = [len(side[place].split()) for side in (pairs.sources, pairs.targets)]
        links = links_within(pairs.links[place], *num_words)
        if [num_words[0] + has_tag, num_words[1]] != num_pieces_words:
            num_of_other_words += bool(links)
            links = ()
        links = tuple((source + has_tag, target) for source, target in links)
        numbers.append(list(chain.from_iterable(links)))
    words = np.fromiter(chain.from_iterable(numbers), np.uint32)
    return EncodedLinks(words, _lengths(numbers), num_of_other_words)


def _lengths(encoded: list[list[int]]) -> npt.NDArray[np.int64]:
    return np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))


def _encoded_side(
    encoded: list[list[int]], kept: npt.NDArray[np.intp], tokenizer: Tokenizer
) -> EncodedSide:
    end, sentences = tokenizer.eos_id, [encoded[place] for place in kept]
    for sentence in sentences:
        sentence.append(end)
    lengths = _lengths(sentences)
    # Few bytes to send to the process that writes them.
    dtype = dtype_holding(max(tokenizer.size, tokenizer.source_size or 0) - 1)
    tokens = np.fromiter(chain.from_iterable(sentences), dtype, count=int(lengths.sum()))
    num_unknown = int((tokens == tokenizer.unk_id).sum())
    return EncodedSide(tokens, lengths, num_unknown)
