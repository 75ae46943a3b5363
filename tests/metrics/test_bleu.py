import os
from pathlib import Path
from typing import get_args

import pytest
import sacrebleu

from nmt_cli.metrics.bleu import (
    Tokenization,
    corpus_bleu,
    corpus_chrf,
    looks_in_pieces,
    looks_tokenized,
)

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
shared = pytest.mark.skipif(
    "NMT_CLI_SHARED" not in os.environ, reason="NMT_CLI_SHARED names no folder with real data"
)


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
    ours = corpus_chrf(HYPOTHESES, REFERENCES, lowercase=lowercase)
    theirs = sacrebleu.CHRF(lowercase=lowercase).corpus_score(HYPOTHESES, REFERENCES)
    assert ours.score == theirs.score
    assert "nc:6|nw:0" in ours.signature
    assert f"case:{'lc' if lowercase else 'mixed'}" in ours.signature


def test_a_perfect_translation_scores_100():
    lines = ["One two three four five.", "Six seven eight nine ten."]
    assert corpus_bleu(lines, [lines]).score == pytest.approx(100.0)
    assert corpus_chrf(lines, [lines]).score == pytest.approx(100.0)


def test_lines_hold_any_character():
    lines = ["a\u2028b c d e", "\x85 f\rg h i j", "\u200b"]
    assert corpus_bleu(lines, [lines]).score == pytest.approx(100.0)


def test_line_counts_must_agree():
    with pytest.raises(ValueError, match="2 hypotheses, but 1 references"):
        corpus_bleu(["a", "b"], [["a", "b"], ["a"]])
    with pytest.raises(ValueError, match="nothing to score"):
        corpus_chrf([], [[]])


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


def shared_lines(*names):
    path = Path(os.environ["NMT_CLI_SHARED"], *names)
    return path.read_bytes().decode().removesuffix("\n").split("\n")


@shared
def test_published_systems_score_what_was_published():
    folder = "systems", "newstest2017-toolkits"
    reference = shared_lines("systems", "wmt17-en-de", "newstest2017.ref.de")
    tokenizations: dict[str, Tokenization] = {
        "sacrebleu-2.5.1 -b -w2 (13a, cased)": "13a",
        "sacrebleu-2.5.1 -tok intl": "intl",
    }
    checked = 0
    for row in shared_lines(*folder, "EXPECTED_BLEU.tsv")[1:]:
        scorer, name, _, expected = row.split("\t")
        if scorer in tokenizations:
            hypotheses = shared_lines(*folder, Path(name).name)
            score = corpus_bleu(hypotheses, [reference], tokenize=tokenizations[scorer]).score
            assert f"{score:.2f}" == expected
            checked += 1
    assert checked == 6


@shared
def test_real_text_is_distinguished_from_tokenized_text_and_pieces():
    for names in [("multi30k", "test_2016_flickr.de"), ("newstest", "newstest2014.en-fr.fr")]:
        lines = shared_lines(*names)
        assert not looks_tokenized(lines)
        assert not looks_in_pieces(lines)
    assert looks_in_pieces(shared_lines("multi30k-bpe", "valid.de"))
    assert looks_tokenized(shared_lines("systems", "newstest2014-fr-en-tokenized", "hyp.tok.en"))
