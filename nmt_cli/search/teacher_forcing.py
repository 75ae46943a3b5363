"""A pass over given translations: the decoder reads the target instead of searching for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from nmt_cli.corpus.tokenizers.sentence_marks import source_end, start_id
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer
from nmt_cli.model.compiled.layers import CompiledLayers, Sentences, Weights
from nmt_cli.model.compiled.packed_model import PackedModel
from nmt_cli.search.sentences import AttentionWeights, SentencePair

if TYPE_CHECKING:
    from nmt_cli.model.transformer import Transformer
    from nmt_cli.search.torch_models import TorchForcing


def teacher_forcing(
    model: Transformer | PackedModel, tokenizer: Tokenizer, precision: str | None = None
) -> CompiledForcing | TorchForcing:
    """Return what lets ``model`` read given pairs.

    A Transformer gets the ``precision``, by default the one that it has. Raises UserError if there
    is no such precision.
    """
    if isinstance(model, PackedModel):
        return CompiledForcing(model, tokenizer)
    from nmt_cli.search.torch_models import TorchForcing  # it imports torch

    return TorchForcing(model, tokenizer, precision)


class CompiledForcing:
    """Reads given pairs by the library for CPUs; what a pair gets depends on that pair only.

    Between calls it holds the model only, and threads may share it.
    """

    device = "cpu"

    def __init__(self, model: PackedModel, tokenizer: Tokenizer) -> None:
        self._model = model
        self._end = source_end(model.config, tokenizer)
        self._start, self._eos = start_id(model.config, tokenizer), tokenizer.eos_id

    def token_scores(self, pairs: Sequence[SentencePair]) -> list[list[float]]:
        """Return the log-probability of each token of each target, then of its ``</s>``.

        It is normalized over the whole vocabulary, as in the search. Raises ValueError if a
        sentence is longer than learned positions allow.
        """
        layers, (sources, targets) = CompiledLayers(self._model), self._read(pairs)
        rows = layers.decode(targets, layers.encode(sources))
        tokens = Sentences.of([(*pair.target, self._eos) for pair in pairs]).tokens
        scores = layers.token_scores(rows, tokens)
        ends = np.cumsum(targets.lengths)
        return [each.tolist() for each in np.split(scores, ends[:-1])]

    def attention(
        self, pairs: Sequence[SentencePair], layers: Sequence[int]
    ) -> list[AttentionWeights]:
        """Return the weights of ``layers``, ascending from 0, of a side as far as it has them.

        Raises ValueError if a sentence is longer than learned positions allow.
        """
        encoder, decoder = self._model.config.encoder_shape, self._model.config.decoder_shape
        computing, (sources, targets) = CompiledLayers(self._model), self._read(pairs)
        within_sources = Weights(encoder, layers, sources.lengths, sources.lengths)
        of_decoder = [] if self._model.config.is_recurrent else layers
        within = Weights(decoder, of_decoder, targets.lengths, targets.lengths)
        to_memory = Weights(decoder, layers, targets.lengths, sources.lengths)
        computing.decode(targets, computing.encode(sources, within_sources), within, to_memory)
        return list(map(AttentionWeights, within_sources.arrays, within.arrays, to_memory.arrays))

    def _read(self, pairs: Sequence[SentencePair]) -> tuple[Sentences, Sentences]:
        sources = Sentences.of([(*pair.source, *self._end) for pair in pairs])
        return sources, Sentences.of([(self._start, *pair.target) for pair in pairs])


def mean_of_models(scores: Sequence[list[list[float]]]) -> list[list[float]]:
    """Return the logarithm of each token's mean probability; ``scores`` are those of each model."""
    if len(scores) == 1:
        return scores[0]
    of_pairs = (np.logaddexp.reduce(each, 0) for each in zip(*scores, strict=True))
    return [(each - math.log(len(scores))).tolist() for each in of_pairs]
