from typing import get_args

import pytest
import sacrebleu

from nmt_cli.metrics.bleu import (
    chrf_scorer,
    corpus_bleu,
    looks_in_pieces,
    looks_tokenized,
)
from nmt_cli.metrics.scorer import Tokenization
from tests.real_text import real_lines

HYPOTHESES = [
    "The cat sat on the mat.",
    "A dog, 3.5 m long, barked!",
    "",
    "It's RAINING; isn't it?",
]
REFERENCES = [
    ["The cat is on the mat.", "One dog of 3.5 m barked!", "Nothing.", "It's raining, isn't it?"],
    ["A cat sat on a mat.", "A dog, 3.5 m long, was barking.", "", "Is it raining?"],
]


@pytest.mark.parametrize("tokenize", get_args(Tokenization))
@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("num_references", [1, 2])
def test_bleu_is_sacrebleus_own(tokenize, lowercase, num_references):
    references = REFERENCES[:num_references]
    ours = corpus_bleu(HYPOTHESES, references, tokenize=tokenize, lowercase=lowercase)
    theirs = sacrebleu.corpus_bleu(
        HYPOTHESES, references, tokenize=tokenize, lowercase=lowercase, force=True
    )
    assert ours.score == theirs.score
    assert ours.precisions == tuple(theirs.precisions)
    assert ours.brevity_penalty == theirs.bp
    assert f"nrefs:{num_references}|case:{'lc' if lowercase else 'mixed'}" in ours.signature
    assert f"tok:{tokenize}|smooth:exp|version:{sacrebleu.__version__}" in ours.signature
    assert ours.signature in str(ours)


@pytest.mark.parametrize("lowercase", [False, True])
def test_chrf_is_sacrebleus_own(lowercase):
    ours = chrf_scorer(lowercase=lowercase).score(HYPOTHESES, REFERENCES)
    theirs = sacrebleu.CHRF(lowercase=lowercase).corpus_score(HYPOTHESES, REFERENCES)
    assert ours.score == theirs.score
    assert "nc:6|nw:0" in ours.signature
    assert f"case:{'lc' if lowercase else 'mixed'}" in ours.signature


def test_a_perfect_translation_scores_100():
    lines = ["One two three four five.", "Six seven eight nine ten."]
    assert corpus_bleu(lines, [lines]).score == pytest.approx(100.0)
    assert chrf_scorer().score(lines, [lines]).score == pytest.approx(100.0)


def test_lines_hold_any_character():
    lines = ["a\u2028b c d e", "\x85 f\rg h i j", "\u200b"]
    assert corpus_bleu(lines, [lines]).score == pytest.approx(100.0)


def test_line_counts_must_agree():
    with pytest.raises(ValueError, match="2 hypotheses, but 1 references"):
        corpus_bleu(["a", "b"], [["a", "b"], ["a"]])
    with pytest.raises(ValueError, match="nothing to score"):
        chrf_scorer().score([], [[]])


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["A dog barks .", "It is late , he said ."], True),
        (["It &apos;s late", "He said &quot; no &quot;"], True),
        (["A dog barks.", "It is late, he said.", "3 . 4"], True),
        (["A dog barks.", "Il est tard !", "Quoi ?", "Non : jamais", "R&D", "x .5"], False),
        ([], False),
    ],
)
def test_tokenized_text_is_recognized(lines, expected):
    assert looks_tokenized(lines) == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["▁A ▁do g ▁bark s ."], True),
        (["a do@@ g", "bar@@ ks", "plain"], True),
        (["@@ a", "write to a@b.example"], False),
        (["plain text.", "more of it."], False),
    ],
)
def test_text_in_pieces_is_recognized(lines, expected):
    assert looks_in_pieces(lines) == expected


def test_real_text_is_distinguished_from_tokenized_text_and_pieces():
    for names in [("multi30k", "test_2016_flickr.de"), ("newstest", "newstest2014.en-fr.fr")]:
        lines = real_lines(*names)
        assert not looks_tokenized(lines)
        assert not looks_in_pieces(lines)
    assert looks_in_pieces(real_lines("multi30k-bpe", "valid.de"))
    assert looks_tokenized(real_lines("systems", "newstest2014-fr-en-tokenized", "hyp.tok.en"))
