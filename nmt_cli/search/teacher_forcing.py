"""A pass over given translations: the decoder reads the target instead of searching for it.

Legend: N layers, H heads, S source pieces and </s>, T <s> and target pieces.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from nmt_cli.corpus.tokenizers.sentence_marks import source_end, start_id
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer
from nmt_cli.model.compiled.passes import GivenTargets, Sentences, Weights
from nmt_cli.recipe.model_config import ModelConfig

Array = NDArray[Any]
# Tokens of the longer side: what the layers compute of so many stays in a CPU's cache.
TOKENS_AT_ONCE = 512


class SentencePair(NamedTuple):
    """A source and its translation as ids of pieces, without marks of start and end."""

    source: Sequence[int]
    target: Sequence[int]


class AttentionWeights(NamedTuple):
    """The attention weights of one sentence pair; those of a query sum to 1.

    Row t of the decoder reads the t-th token of <s> and the target, and predicts the t-th token of
    the target and </s>.
    """

    encoder: Array  # N H S S
    decoder: Array  # N H T T
    memory: Array  # N H T S


class TeacherForcing(Protocol):
    """A model that reads given sentence pairs. Not to be shared between threads."""

    def token_scores(self, pairs: Sequence[SentencePair]) -> list[list[float]]:
        """Return the log-probability of each token of each target, and at last of its ``</s>``.

        It is normalized over the whole vocabulary, as in the search. Raises ValueError if a
        sentence is longer than learned positions allow.
        """
        ...

    def attention(
        self, pairs: Sequence[SentencePair], layers: Sequence[int]
    ) -> list[AttentionWeights]:
        """Return the attention weights within each pair; raises as ``token_scores`` does.

        They are those of ``layers``, counted from 0 and ascending, of a side as far as it has them.
        """
        ...


class CompiledForcing:
    """A ``TeacherForcing`` by the library for CPUs; what a pair gets depends on that pair only."""

    def __init__(self, model: GivenTargets, config: ModelConfig, tokenizer: Tokenizer) -> None:
        self._model, self._config = model, config
        self._end, self._start = source_end(config, tokenizer), start_id(config, tokenizer)
        self._eos = tokenizer.eos_id

    def token_scores(self, pairs: Sequence[SentencePair]) -> list[list[float]]:
        """Return the log-probabilities, as ``TeacherForcing`` describes."""
        found: list[list[float]] = []
        for group in _groups(pairs):
            sources, targets = self._read(group)
            rows = self._model.decode(targets, self._model.encode(sources))
            tokens = Sentences.of([(*pair.target, self._eos) for pair in group]).tokens
            scores = self._model.token_scores(rows, tokens)
            ends = np.cumsum(targets.lengths)
            found += (each.tolist() for each in np.split(scores, ends[:-1]))
        return found

    def attention(
        self, pairs: Sequence[SentencePair], layers: Sequence[int]
    ) -> list[AttentionWeights]:
        """Return the attention weights, as ``TeacherForcing`` describes."""
        found: list[AttentionWeights] = []
        encoder, decoder = self._config.encoder, self._config.decoder
        for group in _groups(pairs):
            sources, targets = self._read(group)
            within_sources = Weights(encoder, layers, sources.lengths, sources.lengths)
            within = Weights(decoder, layers, targets.lengths, targets.lengths)
            to_memory = Weights(decoder, layers, targets.lengths, sources.lengths)
            memory = self._model.encode(sources, within_sources)
            self._model.decode(targets, memory, within, to_memory)
            kinds = (each.arrays for each in (within_sources, within, to_memory))
            found += map(AttentionWeights, *kinds)
        return found

    def _read(self, pairs: Sequence[SentencePair]) -> tuple[Sentences, Sentences]:
        sources = Sentences.of([(*pair.source, *self._end) for pair in pairs])
        return sources, Sentences.of([(self._start, *pair.target) for pair in pairs])


def _groups(pairs: Sequence[SentencePair]) -> Iterator[list[SentencePair]]:
    """Yield ``pairs`` in groups of at most TOKENS_AT_ONCE together, or of one."""
    group, num_tokens = list[SentencePair](), 0
    for pair in pairs:
        longer = max(map(len, pair))
        if group and num_tokens + longer > TOKENS_AT_ONCE:
            yield group
            group, num_tokens = [], 0
        group.append(pair)
        num_tokens += longer
    if group:
        yield group


def mean_of_models(scores: Sequence[list[list[float]]]) -> list[list[float]]:
    """Return the logarithm of each token's mean probability; ``scores`` are those of each model."""
    if len(scores) == 1:
        return scores[0]
    of_pairs = (np.logaddexp.reduce(each, 0) for each in zip(*scores, strict=True))
    return [(each - math.log(len(scores))).tolist() for each in of_pairs]
