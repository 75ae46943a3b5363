"""Pieces and the words that they are part of."""

import random
from typing import Any

import numpy as np
import pytest

from nmt_cli.corpus.tokenizers.piece_words import WordFinder, words_of_pieces
from nmt_cli.recipe.model_settings import text_settings
from tests.fake_models import tiny_recipe


def settings(**tokenizer):
    recipe = tiny_recipe(tokenizer=tokenizer)
    return text_settings(recipe.tokenizer, recipe.data)


SENTENCEPIECE = {"type": "sentencepiece", "vocabulary_size": 300}


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        (["▁the", "▁ant", "s", "▁", "run", "▁fast"], [[0], [1], [1], [2], [2], [3]]),
        (["the", "▁a"], [[0], [1]]),  # no space before the first word
        (["▁", "<en>", "▁hello", "<0xE2>"], [[0], [0], [1], [1]]),
        (["▁in▁the", "re", "▁▁a"], [[0, 1], [1], [2]]),  # of a model made elsewhere
        (["▁a", "▁"], [[0], []]),  # a space at the end
        (["▁", "▁"], [[], []]),
        ([], []),
    ],
)
def test_pieces_of_sentencepiece(pieces, words):
    assert words_of_pieces(pieces, settings(**SENTENCEPIECE)) == words
    num_words = len("".join(pieces).replace("▁", " ").split())
    assert {word for of_piece in words for word in of_piece} == set(range(num_words))


def test_pieces_of_text_in_pieces():
    pieces = ["the", "an@@", "@@", "ts", "▁", "run@@"]
    assert words_of_pieces(pieces, settings(type="whitespace")) == [[n] for n in range(6)]
    joined = words_of_pieces(pieces, settings(type="whitespace", joiner="@@"))
    assert joined == [[0], [1], [1], [1], [2], [3]]


class ListTokenizer:
    """A vocabulary as a list, whose first piece is the end of sentences."""

    eos_id, source_size = 0, None

    def __init__(self, pieces) -> None:
        self._pieces, self.size = pieces, len(pieces)

    def pieces(self, ids, side):
        return [self._pieces[token] for token in ids]


def test_words_are_found_in_many_sentences_at_once_as_in_each():
    # The last ones are of models made elsewhere.
    pieces = ["</s>", "▁", "▁a", "b", "<0xE2>", "▁cd", "<unk>", "▁e▁f", "g▁", "h▁i", "▁▁"]
    text, rng = settings(**SENTENCEPIECE), random.Random(3)
    tokenizer: Any = ListTokenizer(pieces)
    finder = WordFinder(tokenizer, text, "source")
    sentences = [rng.choices(range(1, len(pieces)), k=rng.randrange(7)) for _ in range(300)]
    tokens = np.array([token for sentence in sentences for token in [*sentence, 0]])
    lengths = np.array([len(sentence) + 1 for sentence in sentences])
    found = finder.words(tokens, lengths)
    ends = np.cumsum(lengths)
    for number, (sentence, end) in enumerate(zip(sentences, ends, strict=True)):
        expected = words_of_pieces([pieces[token] for token in sentence], text)
        num_words = 1 + max((word for of_piece in expected for word in of_piece), default=-1)
        assert found.num_words[number] == num_words
        place = slice(end - lengths[number], end - 1)
        ranges = zip(found.first[place], found.last[place], strict=True)
        within = [[n for n in range(a, b + 1) if n < num_words] for a, b in ranges]
        assert within == expected
        assert found.first[end - 1] == num_words  # of </s>: no word


def test_the_words_of_text_in_pieces_are_its_pieces():
    tokenizer: Any = ListTokenizer(["</s>", "the", "an@@", "ts", "▁"])
    finder = WordFinder(tokenizer, settings(type="whitespace", joiner="@@"), "target")
    found = finder.words(np.array([2, 3, 4, 0, 1, 0]), np.array([4, 2]))
    assert found.first.tolist() == found.last.tolist() == [0, 1, 2, 3, 0, 1]
    assert found.num_words.tolist() == [3, 1]
