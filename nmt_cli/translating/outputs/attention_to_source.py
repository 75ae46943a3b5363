"""How much the tokens of outputs attend to the tokens of their source.

It is found by one pass over the finished outputs, so the search is not slower where nobody asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nmt_cli.corpus.tokenizers.piece_words import units_of_pieces, words_of_pieces
from nmt_cli.corpus.tokenizers.sentence_marks import without_end
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer
from nmt_cli.recipe.model_settings import ModelSettings, alignment_layer
from nmt_cli.search.sentences import Attended, AttentionWeights, Hypotheses, Sentence, SentencePair
from nmt_cli.search.teacher_forcing import teacher_forcing

if TYPE_CHECKING:
    from nmt_cli.model.compiled.packed_model import PackedModel
    from nmt_cli.model.transformer import Transformer

TOKENS_AT_ONCE = 1 << 11  # of sources and outputs together; the pass needs little memory beside

Words = Sequence[Sequence[int]]  # the numbers of the words that each piece is part of

_Searched = tuple[Hypotheses, Sequence[int], Sentence]  # also the source without </s>


class AttentionToSource:
    """Adds to the hypotheses of a search what they attend to."""

    def __init__(
        self,
        model: Transformer | PackedModel,
        tokenizer: Tokenizer,
        settings: ModelSettings,
        *,
        of_all: bool = True,
    ) -> None:
        """Attention is that of the head that was trained to align words.

        If the ``settings`` name none, it is the mean of the heads of ``alignment_layer``.

        Without ``of_all``, only hypotheses of sentences that need units or words get it.
        """
        self._config, self._tokenizer, self._text = model.config, tokenizer, settings.text
        self._forcing = teacher_forcing(model, tokenizer)
        self._of_all = of_all
        self._head = settings.alignment
        of_mean = alignment_layer(model.config.decoder_shape.num_layers)
        self._layer = of_mean if self._head is None else self._head.layer

    def needs(self, sentence: Sentence) -> bool:
        """Return whether the hypotheses of ``sentence`` get what they attend to."""
        return self._of_all or sentence.needs_units or sentence.needs_words

    def complete(self, found: list[Hypotheses], sentences: list[Sentence]) -> Iterator[Hypotheses]:
        """Yield the hypotheses of each of ``sentences``, with what each has ``attended`` to."""
        batch, num_tokens = list[_Searched](), 0
        for hypotheses, sentence in zip(found, sentences, strict=True):
            source = without_end(sentence.tokens, self._config)
            batch.append((hypotheses, source, sentence))
            num_tokens += sum(len(source) + len(each.tokens) for each in hypotheses)
            if num_tokens >= TOKENS_AT_ONCE:
                yield from self._together(batch)
                batch, num_tokens = [], 0
        yield from self._together(batch)

    def _together(self, batch: Sequence[_Searched]) -> Iterator[Hypotheses]:
        pairs = [
            SentencePair(source, each.tokens)
            for hypotheses, source, _ in batch
            for each in hypotheses
        ]
        weights = self._forcing.attention(pairs, [self._layer]) if pairs else ()
        outputs = zip(pairs, weights, strict=True)
        for hypotheses, _, sentence in batch:
            attended = (self._attended(*next(outputs), sentence) for _ in hypotheses)
            both = zip(hypotheses, attended, strict=True)
            yield tuple(each._replace(attended=of_each) for each, of_each in both)

    def _attended(
        self, pair: SentencePair, weights: AttentionWeights, sentence: Sentence
    ) -> Attended:
        (memory,) = weights.memory  # H T S, of the only layer
        # Row t predicts token t, and the last row </s>. A last column may belong to </s>.
        first = sentence.tag_length
        of_words = memory.mean(0) if self._head is None else memory[self._head.head]
        attention = of_words[:-1, first : len(pair.source)]
        source = self._tokenizer.pieces(pair.source[first:], "source")
        target = self._tokenizer.pieces(pair.target, "target")
        words = [words_of_pieces(pieces, self._text) for pieces in (target, source)]
        attended = most_attended(attention, *words)
        if not sentence.needs_units:
            return attended
        units = [units_of_pieces(pieces, self._text) for pieces in (target, source)]
        return attended._replace(
            units=most_attended(attention, *units).words,
            attending=most_attended(attention.T, *reversed(units)).words,
        )


def most_attended(attention: NDArray[Any], targets: Words, sources: Words) -> Attended:
    """Return what the tokens and words of an output with ``attention`` [T, S] attend to most.

    The attention of a word is the mean of that of its pieces, and attention to a word is the sum
    over its pieces. ``targets`` and ``sources`` are the words of the pieces of each side.
    """
    of_targets, of_sources = _membership(targets), _membership(sources)
    num_source_words = of_sources.shape[1]
    sums = of_targets.T @ attention @ of_sources
    words = (sums / of_targets.sum(0)[:, None]).argmax(1).tolist() if num_source_words else []
    tokens = attention.argmax(1).tolist() if attention.shape[1] else []
    return Attended(tuple(tokens), tuple(words), num_source_words)


def _membership(words: Words) -> NDArray[Any]:
    """Return a matrix [pieces, words] with a 1 for each piece that is part of a word."""
    num_words = 1 + max((word for of_piece in words for word in of_piece), default=-1)
    matrix = np.zeros((len(words), num_words))
    for piece, of_piece in enumerate(words):
        matrix[piece, of_piece] = 1.0
    return matrix
