"""Guided alignment: a head of the decoder learns to attend to the words that translate each other
(Garg et al. 2019, "Jointly Learning to Align and Translate with Transformer Models").

The kernels of attention return no weights, so those of this head are computed once more from the
rows that enter its attention.

Legend: T rows of the target, S rows of the source, B sentences of a group, K width of a head,
D d_model, L links.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.corpus.binarized import Indices
from nmt_cli.corpus.loader import SentencePairs
from nmt_cli.corpus.prepared import PreparedCorpus
from nmt_cli.corpus.tokenizers.normalization import SIDES
from nmt_cli.corpus.tokenizers.piece_words import WordFinder
from nmt_cli.model.attention import MemoryAttention
from nmt_cli.model.attention_layout import PaddedGroups, unpack
from nmt_cli.model.layers import DecoderLayer
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe.model_settings import AlignmentHead, guided_head, text_settings
from nmt_cli.recipe.schema import Recipe


class PieceLinks(NamedTuple):
    """The links between the pieces of a micro-batch, for ``Guidance.loss``."""

    padded: PaddedGroups  # of the target's rows as queries, and the source's as keys
    places: Tensor  # of each link among the weights [B, T, S] of all groups, one after the other
    shares: Tensor  # of each link: 1 / the number of links of its target piece


class Guidance(NamedTuple):
    """The head that is guided, how much, and what finds the words of pieces."""

    head: AlignmentHead
    weight: float  # of its loss, beside a weight of 1 of the loss of tokens
    decay_steps: int | None  # steps in which the weight falls to 0; None: it stays
    finders: tuple[WordFinder, WordFinder]  # of the source and the target

    def weight_at(self, step: int) -> float:
        """Return the weight for the gradient that follows ``step`` steps."""
        if self.decay_steps is None:
            return self.weight
        return self.weight * max(0.0, 1.0 - step / self.decay_steps)

    def piece_links(self, pairs: SentencePairs, padded: PaddedGroups) -> PieceLinks | None:
        """Return the links between the pieces of ``pairs``; None if there are none.

        ``padded`` are the groups of all sentences, on the CPU.
        """
        if pairs.links is None or not len(pairs.links.tokens):
            return None
        sources, targets = linked_pieces(pairs, self.finders)
        starts = np.cumsum(pairs.source.lengths) - pairs.source.lengths
        sentences = np.searchsorted(np.cumsum(pairs.target.lengths), targets, side="right")
        places = _places_of_weights(padded, targets, sources - starts[sentences])
        num_links = np.bincount(targets)[targets]
        return PieceLinks(
            padded, torch.from_numpy(places), torch.from_numpy((1.0 / num_links).astype(np.float32))
        )

    @contextmanager
    def watching(self, model: Transformer) -> Iterator[list[Tensor]]:
        """Yield a list that gets the rows and the memory that enter the attention of the head."""
        entered: list[Tensor] = []

        def note(_: nn.Module, args: tuple[Tensor, ...]) -> None:
            entered[:] = args[:2]

        handle = self._attention(model).register_forward_pre_hook(note)
        try:
            yield entered
        finally:
            handle.remove()

    def loss(self, model: Transformer, rows: Tensor, memory: Tensor, links: PieceLinks) -> Tensor:
        """Return the summed cross-entropy of the head's weights against ``links``.

        A target piece has the same share for each of its links; one without links adds nothing.
        ``rows`` [T, D] and ``memory`` [S, D] are those that enter its attention.
        """
        attention = self._attention(model)
        queries = self._projected(model, rows, attention.queries, attention.d_k)
        keys = self._projected(model, memory, attention.keys_values, attention.d_k)
        padded, groups = links.padded, links.padded.groups
        query_sizes = [group.num_sentences * group.query_length for group in groups]
        key_sizes = [group.num_sentences * group.key_length for group in groups]
        log_weights = []
        with torch.autocast(queries.device.type, enabled=False):
            for group, q, k in zip(
                groups,
                unpack(queries, padded.queries).split(query_sizes),
                unpack(keys, padded.keys).split(key_sizes),
                strict=True,
            ):
                of_queries, of_keys = (
                    padded_rows.unflatten(0, (group.num_sentences, -1)) for padded_rows in (q, k)
                )
                scores = of_queries @ of_keys.mT * attention.d_k**-0.5  # B T S
                if group.keep is not None:
                    scores = scores.masked_fill(~group.keep[:, 0], -torch.inf)
                log_weights.append(scores.log_softmax(2).flatten())
        of_links = torch.cat(log_weights)[links.places]
        return -of_links @ links.shares.to(of_links.dtype)

    def _attention(self, model: Transformer) -> MemoryAttention:
        return cast(DecoderLayer, model.decoder_layers[self.head.layer]).memory_attention

    def _projected(self, model: Transformer, rows: Tensor, linear: nn.Linear, width: int) -> Tensor:
        """Return the queries or keys of the head [.., K], at least in fp32."""
        part = slice(self.head.head * width, (self.head.head + 1) * width)
        bias = None if linear.bias is None else linear.bias[part]
        projected = F.linear(*model.factors(rows, linear.weight[part]), bias)
        return projected.to(torch.promote_types(projected.dtype, torch.float32))


def guidance_of(recipe: Recipe, corpus: PreparedCorpus) -> Guidance | None:
    """Return the guidance that the recipe asks for; None if it asks for none."""
    config, head = recipe.training.guided_alignment, guided_head(recipe)
    if config is None or head is None:
        return None
    text = text_settings(recipe.tokenizer, recipe.data)
    source, target = (WordFinder(corpus.tokenizer, text, side) for side in SIDES)
    return Guidance(head, config.weight, config.decay_steps, (source, target))


def linked_pieces(
    pairs: SentencePairs, finders: tuple[WordFinder, WordFinder]
) -> tuple[Indices, Indices]:
    """Return the links of ``pairs`` between their pieces: places [L] of source and target tokens.

    All pieces of a word have the links of the word. The links are sorted by target token.
    """
    assert pairs.links is not None
    links = pairs.links.tokens.reshape(-1, 2)
    sentences = np.repeat(np.arange(len(pairs.links.lengths)), pairs.links.lengths // 2)
    firsts, counts = [], []  # of the tokens of the words of each link
    for finder, side, words in zip(finders, pairs.sides, links.T, strict=True):
        ranges = finder.words(side.tokens, side.lengths)
        # Words of all sentences in order; a number after those of a sentence is that of its </s>.
        before = np.cumsum(ranges.num_words + 1) - (ranges.num_words + 1)
        of_tokens = np.repeat(before, side.lengths)
        of_links = before[sentences] + words
        first = np.searchsorted(ranges.last + of_tokens, of_links, side="left")
        end = np.searchsorted(ranges.first + of_tokens, of_links, side="right")
        firsts.append(first)
        counts.append(end - first)
    sizes = counts[0] * counts[1]
    number = np.repeat(np.arange(len(sizes)), sizes)
    place = np.arange(len(number)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    of_target, of_source = np.divmod(place, counts[0][number])
    targets, sources = firsts[1][number] + of_target, firsts[0][number] + of_source
    # A piece may hold several words, and so have a link twice.
    num_sources = len(pairs.source.tokens)
    targets, sources = np.divmod(np.unique(targets * num_sources + sources), num_sources)
    return sources, targets


def _places_of_weights(padded: PaddedGroups, rows: Indices, columns: Indices) -> Indices:
    """Return where weights [L] are in the matrices [B, T, S] of all groups, one after the other.

    ``rows`` [L] are packed rows of the target, ``columns`` [L] places in the source sentences.
    """
    groups = padded.groups
    num_rows = np.array([group.num_sentences * group.query_length for group in groups])
    widths = np.array([group.key_length for group in groups])
    row_ends, sizes = np.cumsum(num_rows), num_rows * widths
    of_padded = padded.queries.to_packed.numpy()[rows]
    group = np.searchsorted(row_ends, of_padded, side="right")
    row = of_padded - (row_ends - num_rows)[group]
    return (np.cumsum(sizes) - sizes)[group] + row * widths[group] + columns
