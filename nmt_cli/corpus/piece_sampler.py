"""Subword regularization: the training text cut into other pieces, drawn anew for each batch."""

import random
from collections.abc import Collection, Iterator
from itertools import chain

import numpy as np

from nmt_cli.corpus.batching import derived_bits
from nmt_cli.corpus.binarized import Sentences
from nmt_cli.corpus.loader import Planned, SentencePairs
from nmt_cli.corpus.prepared import PreparedCorpus
from nmt_cli.corpus.tokenizers.sentencepiece_tokenizer import (
    SPACE_IN_PIECES,
    SentencePieceTokenizer,
)
from nmt_cli.corpus.tokenizers.tokenizer import tag_ids
from nmt_cli.corpus.tokenizers.ways_to_cut import Draw, WaysToCut
from nmt_cli.files.file_names import SENTENCEPIECE_MODEL
from nmt_cli.messages.errors import UserError
from nmt_cli.recipe.schema import Recipe


class PieceSampler:
    """Cuts the text of a batch into pieces at random, as ``tokenizer.sampling`` asks for.

    The pieces depend only on the seed, the number of the batch and its pairs: each epoch draws
    other pieces, and a resumed training, or one on more ranks, draws the same ones. What is no
    plain text stays as it is, such as bytes, ``<unk>``, user-defined symbols and the pieces in
    ``tags``. A sentence keeps its pieces if it would get more of them than the longest sentence
    has. Threads may share a sampler.
    """

    def __init__(
        self, ways: WaysToCut, seed: int, longest: int, tags: Collection[int] = ()
    ) -> None:
        self._ways, self._seed = ways, seed
        self._longest = longest  # tokens of the longest sentence, with its </s>
        self._texts = {piece.id: t for t, piece in ways.pieces.items() if piece.id not in tags}
        # Words are cut on their own, unless pieces reach over a space.
        if any(SPACE_IN_PIECES in text[1:] for text in ways.pieces):
            self._word_beginnings = frozenset[int]()
        else:
            texts = self._texts.items()
            self._word_beginnings = frozenset(i for i, text in texts if text[0] == SPACE_IN_PIECES)

    def change(self, pairs: SentencePairs, planned: Planned) -> SentencePairs:
        """Return the pairs of a batch in other pieces of the same text."""
        source = self.sample(pairs.source, planned.number, "source")
        target = self.sample(pairs.target, planned.number, "target")
        return pairs._replace(source=source, target=target)

    def sample(self, side: Sentences, batch_index: int, name: str) -> Sentences:
        """Return the sentences of the side ``name`` of a batch in other pieces of the same text."""
        draw = random.Random(derived_bits(self._seed, batch_index, name)).random
        chosen = []
        for *sentence, end in side.lists():
            drawn = self._drawn(sentence, draw)
            chosen.append([*(drawn if len(drawn) < self._longest else sentence), end])
        lengths = np.fromiter(map(len, chosen), np.int64, count=len(chosen))
        together = np.fromiter(chain.from_iterable(chosen), np.int64, count=int(lengths.sum()))
        return Sentences(together, lengths)

    def _drawn(self, sentence: list[int], draw: Draw) -> list[int]:
        drawn: list[int] = []
        for word in self._words(sentence):
            if word[0] in self._texts:
                text = "".join([self._texts[piece] for piece in word])
                drawn.extend(self._ways.draw(text, word, draw))
            else:
                drawn.extend(word)
        return drawn

    def _words(self, sentence: list[int]) -> Iterator[tuple[int, ...]]:
        """Yield parts of plain text that are cut on their own, and the tokens between them."""
        start = 0
        for place in range(1, len(sentence)):
            before, after = sentence[place - 1 : place + 1]
            is_inside = before in self._texts and after in self._texts
            if not is_inside or after in self._word_beginnings:
                yield tuple(sentence[start:place])
                start = place
        if sentence:
            yield tuple(sentence[start:])


def sampler_of(recipe: Recipe, corpus: PreparedCorpus) -> PieceSampler | None:
    """Return the sampler that the recipe asks for; None if each text always has the same pieces.

    Raises UserError if the tokenizer of the corpus cannot sample.
    """
    strength = recipe.tokenizer.sampling
    if strength is None:
        return None
    if not isinstance(corpus.tokenizer, SentencePieceTokenizer):
        raise UserError(
            f"tokenizer.sampling needs one SentencePiece model, but {recipe.origin} has two of "
            "them and a vocabulary; remove tokenizer.sampling."
        )
    ways = corpus.tokenizer.ways_to_cut(strength, str(corpus.directory / SENTENCEPIECE_MODEL))
    longest = max(corpus.source.longest, corpus.target.longest)
    found = [tag_ids(tag, corpus.tokenizer) or [] for tag in recipe.data.tags.values()]
    tags = {ids[-1] for ids in found if ids}
    return PieceSampler(ways, recipe.training.seed, longest, tags)
