import pytest
import sacrebleu

from nmt_cli.metrics.bleu import chrf_scorer, ter_scorer
from tests.real_text import real_lines


@pytest.mark.parametrize(
    ("hypothesis", "reference", "edits"),
    [
        ("one two three four five", "one two three four five", 0),
        ("one two six four five", "one two three four five", 1),
        ("one two four five", "one two three four five", 1),
        ("one two two three four five", "one two three four five", 1),
        ("four five one two three", "one two three four five", 1),  # a block that moves is one edit
        ("ONE two Three four five", "one TWO three four five", 0),  # case is ignored
        ("", "one two three four five", 5),
    ],
)
def test_edits_per_hundred_words_of_the_reference(hypothesis, reference, edits):
    score = ter_scorer().score([hypothesis], [[reference]])
    assert (score.edits, score.reference_length) == (edits, 5)
    assert score.score == pytest.approx(100 * edits / 5)


def test_with_several_references_the_nearest_counts_and_lengths_are_averaged():
    references = [["a b c d e f", "g"], ["a b c x", "g h i"]]
    score = ter_scorer().score(["a b c d", "g h i"], references)
    assert score.edits == 1  # x for d; the other reference of each line would need 2 more
    assert score.reference_length == 5 + 2
    assert score.score == pytest.approx(100 / 7)


def test_ter_is_sacrebleus_own_with_its_signature():
    hypotheses = ["The cat sat on the mat.", "It rains, it pours.", "The cat sat on the mat."]
    references = ["On the mat the cat sat.", "It rained; it poured.", "A cat sat on mats."]
    scorer = ter_scorer()
    for _ in range(2):  # the second time from memory
        ours = scorer.score(hypotheses, [references])
        theirs = sacrebleu.corpus_ter(hypotheses, [references])
        assert ours.score == theirs.score
        assert (ours.edits, ours.reference_length) == (theirs.num_edits, theirs.ref_length)
    assert ours.signature == (
        f"nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:{sacrebleu.__version__}"
    )
    assert str(ours).startswith(f"TER {theirs.score:.2f}  ({theirs.num_edits} edits, reference 15 ")
    assert not scorer.higher_is_better


FOLDER = "systems", "wmt17-en-de"


def quoted_scores():
    rows = [row.split("\t") for row in real_lines(*FOLDER, "QUOTED_SCORES.tsv")]
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


@pytest.mark.slow
@pytest.mark.parametrize("place", range(7))
def test_ter_of_published_systems(place):
    quoted = quoted_scores()[place]
    reference = real_lines(*FOLDER, "newstest2017.ref.de")
    score = ter_scorer().score(real_lines(*FOLDER, quoted["system"]), [reference]).score
    assert f"{score / 100:.3f}" == quoted["TER"]


def test_chrf_of_a_published_system():
    reference = real_lines(*FOLDER, "newstest2017.ref.de")
    with_chrf = [quoted for quoted in quoted_scores() if quoted["chrF"]]
    assert with_chrf
    for quoted in with_chrf:
        score = chrf_scorer().score(real_lines(*FOLDER, quoted["system"]), [reference]).score
        assert f"{score:.4f}" == quoted["chrF"]
