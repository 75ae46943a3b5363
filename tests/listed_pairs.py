"""Text pairs in memory, from which a tokenizer is made."""

from collections import Counter
from itertools import chain, repeat

from nmt_cli.corpus.text.parallel_corpora import ParallelCorpora
from nmt_cli.corpus.tokenizers.normalization import SIDES, Normalizer


class ListedPairs(ParallelCorpora):
    """The pairs of any iterable, as ``train_tokenizer`` takes them."""

    def __init__(self, pairs):
        self._pairs = pairs

    def chosen(self, copies):
        return chain.from_iterable(map(repeat, self._pairs, copies))

    def count_words(self, data, sides):
        normalizer, counts = Normalizer(data), Counter[str]()
        for pair in self._pairs:
            for side, text in zip(SIDES, pair, strict=True):
                if side not in sides:
                    continue
                counts.update(normalizer(text, side).split())
        return counts
