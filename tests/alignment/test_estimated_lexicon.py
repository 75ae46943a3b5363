import random
from collections import Counter

import numpy as np
import pytest

from nmt_cli.alignment.estimated_lexicon import LEAST_PROBABILITY, make_lexicon, prepared_pairs
from nmt_cli.corpus.binarized import BinarizedText
from nmt_cli.messages.errors import UserError
from tests.alignment.test_word_aligner import PlainModel, random_pairs

NUM_WORDS = 8


def test_lists_are_those_of_em_in_plain_loops():
    pairs = random_pairs(40, NUM_WORDS)
    model = PlainModel(pairs, NUM_WORDS)
    for iteration in range(5):
        model.iterate(fits_tension=iteration > 0)
    lexicon = make_lexicon(iter(pairs), NUM_WORDS + 1, NUM_WORDS, num_frequent=2, num_targets=3)
    for source in range(NUM_WORDS):
        of_source = {t: p for (s, t), p in model.table.items() if s == source}
        wanted = sorted(of_source, key=lambda target: -of_source[target])[:3]
        wanted = [target for target in wanted if of_source[target] >= LEAST_PROBABILITY]
        assert lexicon.targets_of(source).tolist() == sorted(wanted)
    assert lexicon.targets_of(NUM_WORDS).tolist() == []  # it never occurs
    counts = Counter(target for _, targets in pairs for target in targets)
    frequent = sorted(range(NUM_WORDS), key=lambda target: (-counts[target], target))[:2]
    assert lexicon.frequent.tolist() == sorted(frequent)


def test_pieces_that_translate_each_other_are_found():
    rng = random.Random(3)
    pairs = []
    for _ in range(300):
        source = [rng.randrange(50) for _ in range(rng.randint(2, 9))]
        pairs.append((source, [60 + piece for piece in source]))
    lexicon = make_lexicon(pairs, 50, 120, num_frequent=0, num_targets=1, workers=1)
    assert [lexicon.targets_of(piece).tolist() for piece in range(50)] == [
        [60 + piece] for piece in range(50)
    ]


def test_empty_sides_have_no_part():
    pairs = [([], [4]), ([1], [2]), ([3], [])]
    lexicon = make_lexicon(pairs, 5, 5)
    assert lexicon.candidates(range(5)).tolist() == [2]
    with pytest.raises(UserError, match="no sentence pair has pieces on both sides"):
        make_lexicon([([], [4])], 5, 5)


def test_pairs_of_a_prepared_text_have_no_marks(toy, monkeypatch):
    monkeypatch.setattr("nmt_cli.alignment.estimated_lexicon.SENTENCES_AT_ONCE", 3)
    corpus, eos = toy.corpus, toy.corpus.tokenizer.eos_id
    pairs = list(prepared_pairs(corpus))
    assert len(pairs) == len(corpus.source) > 3
    for side, text in ((0, corpus.source), (1, corpus.target)):
        assert isinstance(text, BinarizedText)
        whole = text.gather(np.arange(len(text))).tokens.tolist()
        assert [token for pair in pairs for token in [*pair[side], eos]] == whole
