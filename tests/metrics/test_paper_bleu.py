"""The paper's BLEU against hand-made tokens, and against the original Perl scripts."""

import pytest
import sacrebleu
import sacremoses

from nmt_cli.metrics.bleu import (
    PAPER_PAIRS,
    PaperTokens,
    bleu_scorer,
    paper_bleu_scorer,
)
from tests.real_text import real_lines

GERMAN = [
    ("Der 8-jährige Hund bellt, oder?", "Der 8 ##AT##-##AT## jährige Hund bellt , oder ?"),
    ("Rot-Weiß-Blau (fast)", "Rot ##AT##-##AT## Weiß ##AT##-##AT## Blau ( fast )"),
    ("Block A-B-C", "Block A ##AT##-##AT## B-C"),  # as the Perl expression, which does not overlap
    ("Dr. Klee zahlt 1.200,50 Euro usw.", "Dr. Klee zahlt 1.200,50 Euro usw ."),
    ("Wer war's? Warte...", "Wer war &apos; s ? Warte ..."),
    ('A&B [neu] - "gut"', "A &amp; B &#91; neu &#93; - &quot; gut &quot;"),
    ("Am 3. Mai kam die Nr.", "Am 3. Mai kam die Nr ."),
    ("", ""),
]
FRENCH = [
    ("L'ami d'Ève dit-il vrai ?", "L&apos; ami d&apos; Ève dit-il vrai ?"),
    ("Aujourd'hui, rien.", "Aujourd&apos; hui , rien ."),
]


@pytest.mark.parametrize(("pair", "texts"), [("en-de", GERMAN), ("en-fr", FRENCH)])
def test_tokens_are_those_of_moses_with_compounds_split_in_german(pair, texts):
    scorer = paper_bleu_scorer(PAPER_PAIRS[pair])
    for text, tokens in texts:
        assert scorer.metric._preprocess_segment(text).split() == tokens.split()


@pytest.mark.parametrize(("pair", "texts"), [("en-de", GERMAN), ("en-fr", FRENCH)])
def test_score_is_sacrebleus_of_the_tokens(pair, texts):
    references = [text for text, _ in texts]
    hypotheses = [text.replace("a", "e").replace("rien", "tout") for text in references]
    tokenized = paper_bleu_scorer(PAPER_PAIRS[pair]).metric._preprocess_segment
    ours = paper_bleu_scorer(PAPER_PAIRS[pair]).score(hypotheses, [references])
    theirs = sacrebleu.corpus_bleu(
        [tokenized(line) for line in hypotheses],
        [[tokens for _, tokens in texts]],
        tokenize="none",
        force=True,
    )
    assert 0 < ours.score < 100
    assert ours.score == theirs.score
    assert (ours.hypothesis_length, ours.reference_length) == (theirs.sys_len, theirs.ref_len)


@pytest.mark.parametrize(
    ("pair", "tokens"), [("en-de", "moses-de+split-compounds"), ("en-fr", "moses-fr")]
)
def test_signature_has_the_steps_and_both_versions(pair, tokens):
    score = paper_bleu_scorer(PAPER_PAIRS[pair]).score(["a b c d"], [["a b c d"]])
    assert score.signature == (
        f"nrefs:1|case:mixed|eff:no|tok:{tokens}|smooth:exp|"
        f"sacremoses:{sacremoses.__version__}|version:{sacrebleu.__version__}"
    )
    assert str(score).startswith("paper's BLEU 100.00  ")


# Of three published toolkits; computed with the original programs.
SCORERS = {
    "sacrebleu-2.5.1 -b -w2 (13a, cased)": lambda: bleu_scorer("13a"),
    "sacrebleu-2.5.1 -tok intl": lambda: bleu_scorer("intl"),
    "moses multi-bleu-detok.perl": lambda: bleu_scorer("13a"),
    "tokenizer.perl + multi-bleu.perl": lambda: paper_bleu_scorer(PaperTokens("de", False)),
    "get_ende_bleu.sh recipe (compound split, as in the paper)": lambda: paper_bleu_scorer(
        PAPER_PAIRS["en-de"]
    ),
}
TOOLKITS = [
    "transformer/sockeye",
    pytest.param("transformer/tensor2tensor", marks=pytest.mark.slow),
    pytest.param("cnn/fairseq", marks=pytest.mark.slow),
]


def as_multi_bleu_prints(score):
    precisions = "/".join(f"{precision:.1f}" for precision in score.precisions)
    return (
        f"BLEU = {score.score:.2f}, {precisions} (BP={score.brevity_penalty:.3f}, "
        f"ratio={score.hypothesis_length / score.reference_length:.3f}, "
        f"hyp_len={score.hypothesis_length}, ref_len={score.reference_length})"
    )


@pytest.mark.parametrize("scorer", SCORERS)
@pytest.mark.parametrize("toolkit", TOOLKITS)
def test_published_systems_score_what_the_original_programs_print(toolkit, scorer):
    rows = real_lines("systems", "newstest2017-toolkits", "EXPECTED_BLEU.tsv")
    row = next(row for row in rows if row.startswith(f"{scorer}\t{toolkit}."))
    expected = row.split("\t")[3]
    name = f"{toolkit.split('/')[1]}.en-de.detok"
    hypotheses = real_lines("systems", "newstest2017-toolkits", name)
    reference = real_lines("systems", "wmt17-en-de", "newstest2017.ref.de")
    score = SCORERS[scorer]().score(hypotheses, [reference])
    if expected.startswith("BLEU"):
        assert as_multi_bleu_prints(score) == expected
    else:
        assert f"{score.score:.2f}" == expected


@pytest.mark.parametrize(
    ("tokenize", "expected"),
    [("13a", "BLEU = 39.69, "), ("none", "BLEU = 39.13, 69.7/45.7/32.2/23.3 (BP=0.994, ")],
)
def test_tokenized_text_of_a_published_system(tokenize, expected):
    folder = "systems", "newstest2014-fr-en-tokenized"
    score = bleu_scorer(tokenize).score(
        real_lines(*folder, "hyp.tok.en"), [real_lines(*folder, "ref.tok.en")]
    )
    assert as_multi_bleu_prints(score).startswith(expected)


@pytest.mark.slow
def test_published_systems_score_what_the_evaluation_campaign_reported():
    folder = "systems", "wmt17-en-de"
    reference = real_lines(*folder, "newstest2017.ref.de")
    rows = [row.split("\t") for row in real_lines(*folder, "QUOTED_SCORES.tsv")[1:]]
    assert len(rows) == 7
    for name, bleu, *_ in rows:
        score = bleu_scorer("13a").score(real_lines(*folder, name), [reference]).score
        assert f"{score:.2f}" == f"{float(bleu):.2f}"
