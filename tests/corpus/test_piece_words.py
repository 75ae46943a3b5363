"""Pieces and the words that they are part of."""

import pytest

from nmt_cli.corpus.tokenizers.piece_words import words_of_pieces
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
