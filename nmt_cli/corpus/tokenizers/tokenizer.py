"""Text to token ids and back: the interface of all tokenizers, and how one is loaded or trained."""

from __future__ import annotations

import random
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from nmt_cli.corpus.tokenizers import sentencepiece_tokenizer, whitespace_tokenizer
from nmt_cli.corpus.tokenizers.mapped_sentencepiece import MappedSentencePieceTokenizer, load_mapped
from nmt_cli.corpus.tokenizers.normalization import SIDES, Normalizer, Side
from nmt_cli.corpus.tokenizers.sentencepiece_tokenizer import (
    SPACE_IN_PIECES,
    SentencePieceTokenizer,
)
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import WhitespaceTokenizer
from nmt_cli.files import file_names
from nmt_cli.messages.errors import UserError

if TYPE_CHECKING:
    from nmt_cli.corpus.text.parallel_corpora import ParallelCorpora
    from nmt_cli.recipe.model_settings import TextSettings
    from nmt_cli.recipe.sections.data import DataConfig
    from nmt_cli.recipe.sections.tokenizer import TokenizerConfig

NEW = "the new tokenizer"  # in messages
VOCABULARY_AT_ONCE = 1000  # pieces


# Each cuts normalized text into pieces of one vocabulary, or of one for each language. Both
# vocabularies have ``<unk>`` and ``</s>`` at the same places. ``size`` is that of the target's,
# ``source_size`` that of the source's own, or None. ``bos_id`` is the decoder's first input.
Tokenizer: TypeAlias = SentencePieceTokenizer | MappedSentencePieceTokenizer | WhitespaceTokenizer


def source_pieces(tokenizer: Tokenizer) -> Iterator[str]:
    """Yield the pieces of the source's vocabulary, some at a time, because many are not needed."""
    size = tokenizer.source_size or tokenizer.size
    for start in range(0, size, VOCABULARY_AT_ONCE):
        yield from tokenizer.pieces(
            range(start, min(size, start + VOCABULARY_AT_ONCE)), side="source"
        )


def tag_ids(tag: str, tokenizer: Tokenizer) -> list[int] | None:
    """Return the ids of ``tag`` in front of a source; None if it is not one piece.

    The piece of a space may precede it.
    """
    ids = tokenizer.encode(tag)
    pieces = [piece for piece in tokenizer.pieces(ids, "source") if piece != SPACE_IN_PIECES]
    return ids if len(pieces) == 1 and tokenizer.unk_id not in ids else None


def tag_pieces(
    tag: str | None, tokenizer: Tokenizer, name: str = "--tag", other: str = "one"
) -> Sequence[int]:
    """Return the pieces of ``tag``; none if there is no tag.

    Raises UserError if it is not one piece of the model, which a space may precede: ``name`` is
    what the error calls it, and ``other`` what it proposes.
    """
    if tag is None:
        return ()
    pieces = tag_ids(tag, tokenizer)
    if pieces is None:
        raise UserError(
            f"{name} {shlex.quote(tag)} is not one piece in the vocabulary of this model's source; "
            f"give {other} that the model was trained with."
        )
    return pieces


def load_tokenizer(directory: Path, text: TextSettings) -> Tokenizer:
    """Return the tokenizer of the model or the export ``directory``, with its normalization.

    Raises UserError if its file cannot be read, DamagedError if it is damaged.
    """
    normalizer = Normalizer(text)
    if text.type == "whitespace":
        path = directory / file_names.VOCABULARY
        vocabulary = whitespace_tokenizer.read_vocabulary(path)
        of_source = directory / file_names.SOURCE_VOCABULARY
        own = whitespace_tokenizer.read_vocabulary(of_source) if of_source.exists() else None
        return WhitespaceTokenizer(vocabulary, normalizer, text.joiner, own)
    if (directory / file_names.TARGET_PIECES).exists():
        return load_mapped(directory, normalizer)
    path = directory / file_names.SENTENCEPIECE_MODEL
    model = sentencepiece_tokenizer.read_model(path)
    return SentencePieceTokenizer(model, normalizer, str(path))


def train_tokenizer(
    config: TokenizerConfig,
    data: DataConfig,
    text: ParallelCorpora,
    sizes: Sequence[int],
    seed: int,
) -> Tokenizer:
    """Return a tokenizer made from the pairs of ``text``, or from the model file the recipe names.

    ``sizes`` are the pairs of each corpus.

    Raises UserError if the recipe asks for what this text or model file does not allow, and
    DamagedError if the model file is damaged.
    """
    normalizer = Normalizer(data)
    if config.model is not None:
        return sentencepiece_tokenizer.existing_tokenizer(config, normalizer, config.model)
    if config.type == "whitespace":
        *of_source, vocabulary = [
            whitespace_tokenizer.make_vocabulary(text.count_words(data, sides), config)
            for sides in _sides_together(config)
        ]
        own = of_source[0] if of_source else None
        return WhitespaceTokenizer(vocabulary, normalizer, config.joiner, own)
    models: dict[Side, bytes] = {}
    for sides in _sides_together(config):
        num_sampled = min(sum(sizes), max(1, config.training_sentences // len(sides)))
        shares = shares_of_sample(data, sizes, num_sampled)
        sampled = text.chosen(sampled_copies(sizes, shares, seed))
        sentences = _normalized(sampled, normalizer, sides)
        model = sentencepiece_tokenizer.train_model(
            sentences, config, len(sides) * num_sampled, seed
        )
        models |= dict.fromkeys(sides, model)
    if config.shared:
        return SentencePieceTokenizer(model, normalizer, NEW)
    return MappedSentencePieceTokenizer.of_models(models, normalizer, NEW)


def most_pieces(
    config: TokenizerConfig, data: DataConfig, pairs: Callable[[], Iterable[tuple[str, str]]]
) -> int | None:
    """Return how many pieces a new SentencePiece model can have, if ``config`` asks for more.

    Returns None if it may have as many, which is usually seen after some thousand pairs.
    """
    for sides in _sides_together(config):
        sentences = _normalized(pairs(), Normalizer(data), sides)
        if (most := sentencepiece_tokenizer.most_pieces(sentences, config)) is not None:
            return most
    return None


def _sides_together(config: TokenizerConfig) -> list[tuple[Side, ...]]:
    """Return the sides that have a vocabulary together, the target's last."""
    return [SIDES] if config.shared else [(side,) for side in SIDES]


def _normalized(
    pairs: Iterable[tuple[str, str]], normalizer: Normalizer, sides: Sequence[Side]
) -> Iterator[str]:
    for pair in pairs:
        for side, text in zip(SIDES, pair, strict=True):
            if side in sides:
                yield normalizer(text, side)


def shares_of_sample(data: DataConfig, sizes: Sequence[int], num_sampled: int) -> list[int]:
    """Return how many pairs of each corpus are sampled: as many as it has in training, on average.

    With stages this is the mean of their shares. Without any weight above 0, sizes decide.
    """
    of_stages = [
        [size * weight for size, weight in zip(sizes, data.weights(sizes, stage), strict=True)]
        for stage in range(max(1, len(data.stages)))
    ]
    weighted = [[each / sum(shares) for each in shares] for shares in of_stages if any(shares)]
    ends = [*accumulate(map(sum, zip(*weighted, strict=True)) if weighted else sizes)]
    whole = [round(num_sampled * end / ends[-1]) if num_sampled else 0 for end in ends]
    return [end - before for before, end in pairwise([0, *whole])]


def sampled_copies(sizes: Sequence[int], shares: Sequence[int], seed: int) -> Iterator[int]:
    """Yield how often each pair is sampled; pairs of a corpus differ by at most one.

    Of each corpus, its share is sampled exactly, and all subsets are equally likely.
    """
    draw = random.Random(seed).random
    for size, share in zip(sizes, shares, strict=True):
        copies, needed = divmod(share, max(1, size))
        for remaining in range(size, 0, -1):
            is_once_more = draw() * remaining < needed
            needed -= is_once_more
            yield copies + is_once_more
