"""Encodes text pairs as token ids, chunk by chunk, and writes them."""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nmt_cli.corpus.binarized import BinarizedWriter, dtype_holding, writing_binarized
from nmt_cli.corpus.chunk_pool import ChunkPool
from nmt_cli.corpus.prepared import LINKS
from nmt_cli.corpus.text.cleaning import KEPT, PairLimits, rules_broken
from nmt_cli.corpus.text.first_pass import Cleaner, CorpusChunk, FittingPairs
from nmt_cli.corpus.text.links import links_within
from nmt_cli.corpus.text.parallel_corpora import ParallelCorpora
from nmt_cli.corpus.text.parallel_text import Texts
from nmt_cli.corpus.text.sentences import has_several
from nmt_cli.corpus.tokenizers.normalization import SIDES, Side
from nmt_cli.corpus.tokenizers.piece_words import WordFinder
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer, tag_ids
from nmt_cli.messages import logs
from nmt_cli.recipe.model_settings import text_settings
from nmt_cli.recipe.schema import Recipe

SAMPLED = 10  # the sentences of every tenth pair are counted
PAIRS_WORTH_A_WORKER = 20_000  # encoding them takes about as long as starting a process


class EncodedSide(NamedTuple):
    """Sentences of one side, one after the other, each with its ``</s>``."""

    tokens: npt.NDArray[Any]
    lengths: npt.NDArray[np.int64]
    num_unknown: int
    characters: frozenset[str]  # after normalization


class EncodedLinks(NamedTuple):
    """The links of some pairs, one after the other, each a source word and a target word."""

    words: npt.NDArray[Any]
    lengths: npt.NDArray[np.int64]  # numbers of each pair, two for each of its links
    num_of_other_words: int  # pairs whose links were left out: other words than in the text


class EncodedPairs(NamedTuple):
    """Encoded pairs: the rule that each pair broke, and the tokens of pairs that broke none."""

    broken: npt.NDArray[np.int8]
    source: EncodedSide
    target: EncodedSide
    links: EncodedLinks | None  # None if no corpus has alignments
    are_single: Sequence[bool]  # whether the source is one sentence, of some of the pairs


class TokenCounts(NamedTuple):
    """What was written for each side: its tokens, including each ``</s>``, and its characters."""

    tokens: dict[Side, int]
    unknown: dict[Side, int]  # of the tokens
    characters: dict[Side, set[str]]


class Encoder(NamedTuple):
    """Writes parts of the corpus as token ids into ``directory``."""

    recipe: Recipe
    tokenizer: Tokenizer
    directory: Path
    pool: ChunkPool

    def choose_repeated(self, corpora: ParallelCorpora, limits: PairLimits, folder: Path) -> bool:
        """Choose which of repeated pairs stay, among those whose lengths fit the ``limits``.

        Returns whether some are others than the corpora had chosen without their lengths. Hashes
        are written to ``folder`` if they do not fit in memory.
        """
        cleaner, tags = corpora.cleaner, self._ids_of_tags(corpora)
        assert cleaner is not None
        work = partial(
            fitting_pairs, tokenizer=self.tokenizer, limits=limits, tags=tags, cleaner=cleaner
        )
        num_read = sum(report.pairs_read for report in corpora.reports)
        with logs.progress("comparing repeated pairs", "pairs", num_read) as counter:
            return corpora.choose_again(folder, work, counter.advance)

    def _ids_of_tags(self, corpora: ParallelCorpora) -> list[list[int]]:
        tags = (report.files.tag for report in corpora.reports)
        return [(tag and tag_ids(tag, self.tokenizer)) or [] for tag in tags]

    def encode(self, part: str, corpora: ParallelCorpora, limits: PairLimits) -> TokenCounts:
        """Write the token files of ``part``; count kept and dropped pairs in ``corpora``."""
        tokenizer, longest = self.tokenizer, self.recipe.data.max_length
        finders = None
        if any("alignments" in report.paths for report in corpora.reports):
            text = text_settings(self.recipe.tokenizer, self.recipe.data)
            finders = [WordFinder(tokenizer, text, side) for side in SIDES]
        tags = self._ids_of_tags(corpora)
        languages = [self.recipe.data.languages_of(report.files)[0] for report in corpora.reports]
        work = partial(
            encode_chunk,
            tokenizer=tokenizer,
            limits=limits,
            tags=tags,
            languages=languages,
            finders=finders,
        )
        workers = self.pool.useful_workers(corpora.num_text_pairs, PAIRS_WORTH_A_WORKER)
        num_read = sum(report.pairs_read for report in corpora.reports)
        unknown: dict[Side, int] = dict.fromkeys(SIDES, 0)
        characters: dict[Side, set[str]] = {side: set() for side in SIDES}
        with ExitStack() as stack:
            counter = stack.enter_context(logs.progress(f"encoding {part}", "pairs", num_read))

            def opened(name: str, largest: int, most: int) -> BinarizedWriter:
                return stack.enter_context(writing_binarized(self.directory, name, largest, most))

            size = max(tokenizer.size, tokenizer.source_size or 0)
            writers = {side: opened(f"{part}.{side}", size, longest + 1) for side in SIDES}
            # A pair has fewer words than pieces, and at most all links between them.
            of_links = opened(LINKS, longest, 2 * longest**2) if finders is not None else None
            for chunk, encoded in self.pool.in_order(corpora.chunks(), work, workers, "encoding"):
                report = corpora.reports[chunk.corpus]
                report.count(encoded.broken, chunk.lines)
                report.are_single.update(encoded.are_single)
                for side, written in zip(SIDES, (encoded.source, encoded.target), strict=True):
                    writers[side].append(written.tokens, written.lengths)
                    unknown[side] += written.num_unknown
                    characters[side] |= written.characters
                if of_links is not None and encoded.links is not None:
                    of_links.append(encoded.links.words, encoded.links.lengths)
                    report.links += len(encoded.links.words) // 2
                    report.pairs_of_other_words += encoded.links.num_of_other_words
                counter.advance(chunk.lines.num_lines)
        tokens = {side: writers[side].tokens.count for side in SIDES}
        return TokenCounts(tokens, unknown, characters)


def learnt_characters(
    of_text: Iterable[str], tokenizer: Tokenizer, side: Side, symbols: Iterable[str]
) -> str:
    """Return the characters that a model learns from a side, and those of ``symbols``, sorted.

    It learns those ``of_text`` that the tokenizer has pieces for.
    """
    size = (tokenizer.source_size if side == "source" else None) or tokenizer.size
    in_pieces = {*chain.from_iterable(tokenizer.pieces(range(size), side))}
    learnt = {
        character
        for character in of_text
        if not character.isspace()
        and (character in in_pieces or tokenizer.unk_id not in tokenizer.encode(character, side))
    }
    return "".join(sorted(learnt.union(*symbols)))


def encode_chunk(
    chunk: CorpusChunk,
    tokenizer: Tokenizer,
    limits: PairLimits,
    tags: Sequence[list[int]],
    languages: Sequence[str],
    finders: Sequence[WordFinder] | None,
) -> EncodedPairs:
    """Return the pairs as token ids, without those that break a rule.

    The source of each pair begins with the pieces ``tags[chunk.corpus]``, and is in the language
    ``languages[chunk.corpus]``. ``finders`` find the
    words of both sides if a corpus has alignments.
    """
    broken, pairs = chunk.text_pairs()
    tag = tags[chunk.corpus]
    texts, (sources, targets) = _encoded(pairs, tokenizer, tag)
    of_lengths = rules_broken(_lengths(sources), _lengths(targets), limits)
    kept = np.flatnonzero(of_lengths == KEPT)
    broken[broken == KEPT] = of_lengths
    sides = [
        _encoded_side(side, of_side, kept, tokenizer)
        for side, of_side in zip((sources, targets), texts, strict=True)
    ]
    links = None
    if finders is not None:
        links = _encoded_links(pairs, kept, sides, finders, has_tag=bool(tag))
    sampled = kept[(chunk.first_index + np.flatnonzero(broken == KEPT)) % SAMPLED == 0]
    language = languages[chunk.corpus]
    are_single = [not has_several(pairs.sources[place], language) for place in sampled]
    return EncodedPairs(broken, sides[0], sides[1], links, are_single)


def fitting_pairs(
    chunk: CorpusChunk,
    tokenizer: Tokenizer,
    limits: PairLimits,
    tags: Sequence[list[int]],
    cleaner: Cleaner,
) -> FittingPairs:
    """Return the hashes of the pairs whose lengths fit the ``limits``, and how many do not fit.

    The source of each pair begins with the pieces ``tags[chunk.corpus]``.
    """
    broken, pairs = chunk.text_pairs()
    _, (sources, targets) = _encoded(pairs, tokenizer, tags[chunk.corpus])
    fits = rules_broken(_lengths(sources), _lengths(targets), limits) == KEPT
    places = np.flatnonzero(broken == KEPT)[fits]
    records = cleaner.records(chunk, pairs.only(fits), places)
    return FittingPairs(len(fits) - len(places), records)


def _encoded(
    pairs: Texts, tokenizer: Tokenizer, tag: list[int]
) -> tuple[list[list[str]], list[list[list[int]]]]:
    """Return the normalized texts of both sides, and their ids.

    The ids of each source begin with those of ``tag``.
    """
    sides = (pairs.sources, pairs.targets)
    texts = [tokenizer.normalized(each, side) for side, each in zip(SIDES, sides, strict=True)]
    sources, targets = (
        tokenizer.encode_normalized(each, side) for side, each in zip(SIDES, texts, strict=True)
    )
    return texts, [[[*tag, *source] for source in sources] if tag else sources, targets]


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
    if pairs.links is None:
        return EncodedLinks(np.zeros(0, np.uint32), np.zeros(len(kept), np.int64), 0)
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
    encoded: list[list[int]],
    texts: Sequence[str],
    kept: npt.NDArray[np.intp],
    tokenizer: Tokenizer,
) -> EncodedSide:
    end, sentences = tokenizer.eos_id, [encoded[place] for place in kept]
    for sentence in sentences:
        sentence.append(end)
    lengths = _lengths(sentences)
    # Few bytes to send to the process that writes them.
    dtype = dtype_holding(max(tokenizer.size, tokenizer.source_size or 0) - 1)
    tokens = np.fromiter(chain.from_iterable(sentences), dtype, count=int(lengths.sum()))
    num_unknown = int((tokens == tokenizer.unk_id).sum())
    characters = frozenset(chain.from_iterable(texts[place] for place in kept))
    return EncodedSide(tokens, lengths, num_unknown, characters)
