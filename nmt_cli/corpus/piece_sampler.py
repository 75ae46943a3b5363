"""Subword regularization: the training text cut into other pieces, drawn anew for each batch."""

from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from nmt_cli.corpus.binarized import Gathered, PreparedCorpus
from nmt_cli.corpus.sentencepiece_tokenizer import SentencePieceTokenizer
from nmt_cli.derived_seeds import derived_bits
from nmt_cli.file_names import SENTENCEPIECE_MODEL
from nmt_cli.recipe.schema import Recipe

LARGEST_SEED = 2**32 - 2  # SentencePiece ignores the next number


class PieceSampler(NamedTuple):
    """Cuts the text of a batch into pieces at random, as ``tokenizer.sampling`` asks for.

    The pieces depend only on the seed, the number of the batch and its pairs: each epoch draws
    other pieces, and a resumed training, or one on more ranks, draws the same ones. A sentence
    keeps its plain pieces if the drawn ones were more than the longest sentence has, if they cut a
    user-defined symbol apart (a unigram model may do so), and if the sentence holds ``<unk>``,
    because its text is then not known. Threads may share a sampler.
    """

    tokenizer: SentencePieceTokenizer
    strength: float
    seed: int
    longest: int  # tokens of the longest sentence, with its </s>

    def sample(self, side: Gathered, batch_index: int, name: str) -> Gathered:
        """Return the sentences of the side ``name`` of a batch in other pieces of the same text."""
        tokens, ends = side.tokens.tolist(), np.cumsum(side.lengths).tolist()
        plain = [tokens[start : end - 1] for start, end in pairwise([0, *ends])]
        seed = derived_bits(self.seed, batch_index, name) % (LARGEST_SEED + 1)
        drawn = self.tokenizer.sample_batch(plain, self.strength, seed)
        chosen = [
            other if self._may_replace(own, other) else own
            for own, other in zip(plain, drawn, strict=True)
        ]
        for pieces in chosen:
            pieces.append(self.tokenizer.eos_id)
        lengths = np.fromiter(map(len, chosen), np.int64, count=len(chosen))
        together = np.fromiter(chain.from_iterable(chosen), np.int64, count=int(lengths.sum()))
        return Gathered(together, lengths)

    def _may_replace(self, own: list[int], other: list[int]) -> bool:
        symbols_of = self.tokenizer.symbols_of
        return (
            0 < len(other) < self.longest
            and self.tokenizer.unk_id not in own
            and symbols_of(own) == symbols_of(other)
        )


def sampler_of(recipe: Recipe, corpus: PreparedCorpus) -> PieceSampler | None:
    """Return the sampler that the recipe asks for; None if each text always has the same pieces.

    Raises UserError if the tokenizer of the corpus cannot sample.
    """
    strength = recipe.tokenizer.sampling
    if strength is None:
        return None
    assert isinstance(corpus.tokenizer, SentencePieceTokenizer)  # the recipe allows no other
    corpus.tokenizer.refuse_without_sampling(str(corpus.directory / SENTENCEPIECE_MODEL))
    longest = max(int(side.lengths.max()) for side in (corpus.source, corpus.target))
    return PieceSampler(corpus.tokenizer, strength, recipe.training.seed, longest)
