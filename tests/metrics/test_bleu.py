"""BLEU, chrF and TER against sacrebleu; the paper's BLEU against the original Perl scripts."""

import shlex
import sys
from collections import Counter
from typing import get_args

import pytest
import sacrebleu
import sacremoses
from sacrebleu.tokenizers import tokenizer_spm

from nmt_cli.messages.errors import UserError
from nmt_cli.metrics.bleu import (
    PAPER_PAIRS,
    bleu_scorer,
    chrf_scorer,
    looks_in_pieces,
    looks_tokenized,
    paper_bleu_scorer,
    ter_scorer,
)
from nmt_cli.metrics.tokenization import MODELS, PACKAGES, Tokenization
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


NEEDING_NOTHING = set(get_args(Tokenization)) - {*PACKAGES, *MODELS}


@pytest.mark.parametrize("tokenize", sorted(NEEDING_NOTHING))
@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("num_references", [1, 2])
def test_the_signature_has_the_settings(tokenize, lowercase, num_references):
    references = REFERENCES[:num_references]
    score = bleu_scorer(tokenize, lowercase=lowercase).score(HYPOTHESES, references)
    assert score.signature == (
        f"nrefs:{num_references}|case:{'lc' if lowercase else 'mixed'}|eff:no|tok:{tokenize}|"
        f"smooth:exp|version:{sacrebleu.__version__}"
    )
    assert str(score).endswith(f"  {score.signature}")


def test_every_tokenizer_of_sacrebleu_can_be_chosen():
    assert set(sacrebleu.BLEU.TOKENIZERS) <= set(get_args(Tokenization))


@pytest.mark.parametrize(("tokenize", "needed"), [("ja-mecab", "ja"), ("ko-mecab", "ko")])
def test_a_tokenizer_names_the_package_that_it_needs(monkeypatch, tokenize, needed):
    module = f"sacrebleu.tokenizers.tokenizer_{tokenize.replace('-', '_')}"
    monkeypatch.setitem(sys.modules, module, None)  # importing it fails
    with pytest.raises(UserError) as caught:
        bleu_scorer(tokenize)
    assert str(caught.value) == (
        f"BLEU with the tokenizer {tokenize} needs packages that cannot be used. Choose another "
        f"one, such as char, or run: {shlex.quote(sys.executable)} -m pip install "
        f"'sacrebleu[{needed}]'"
    )


@pytest.mark.parametrize(
    ("tokenize", "sentence"),
    [("ja-mecab", "犬 が 公園 を 走る 。"), ("ko-mecab", "개 가 공원 에서 달린다 .")],
)
def test_the_packages_of_the_extras_cut_japanese_and_korean_into_words(tokenize, sentence):
    for module in PACKAGES[tokenize][0]:
        pytest.importorskip(module, reason=f"the extra {tokenize[:2]} is not installed")
    written = sentence.replace(" ", "")
    score = bleu_scorer(tokenize).score([written], [[written]])
    found = round(score.score), score.details["hypothesis_length"]
    assert found == (100, len(sentence.split()))


@pytest.mark.parametrize("failure", [OSError("no network"), SystemExit(1)])
@pytest.mark.parametrize("tokenize", ["flores101", "flores200"])
def test_a_tokenizer_names_the_model_that_it_cannot_download(
    tmp_path, monkeypatch, tokenize, failure
):
    def download(*_):
        raise failure

    monkeypatch.setattr(tokenizer_spm, "SACREBLEU_DIR", str(tmp_path))
    monkeypatch.setattr(tokenizer_spm, "download_file", download)
    message = rf"^BLEU with the tokenizer {tokenize} needs a model .*/models \({failure}\)\. Choose"
    with pytest.raises(UserError, match=message):
        bleu_scorer(tokenize)


def test_a_tokenizer_that_this_sacrebleu_lacks_needs_a_newer_one(monkeypatch):
    monkeypatch.setattr(sacrebleu.BLEU, "TOKENIZERS", {"13a": ""})
    message = rf"^sacreBLEU {sacrebleu.__version__} has no tokenizer zh; run: .* --upgrade sacr"
    with pytest.raises(UserError, match=message):
        bleu_scorer("zh")


def ngrams(lines, size):
    """Count the n-grams of the characters of each line, without spaces."""
    texts = [line.replace(" ", "") for line in lines]
    return [Counter(text[i : i + size] for i in range(len(text) - size + 1)) for text in texts]


def chrf2(hypotheses, references):
    """The mean precision and recall of n-grams of 1 to 6 characters (Popović 2015), beta = 2."""
    precisions, recalls = [], []
    for size in range(1, 7):
        ours, theirs = ngrams(hypotheses, size), ngrams(references, size)
        common = sum((one & other).total() for one, other in zip(ours, theirs, strict=True))
        precisions.append(common / sum(one.total() for one in ours))
        recalls.append(common / sum(one.total() for one in theirs))
    precision, recall = sum(precisions) / 6, sum(recalls) / 6
    return 100 * 5 * precision * recall / (4 * precision + recall)


@pytest.mark.parametrize("lowercase", [False, True])
def test_chrf_is_that_of_its_definition(lowercase):
    score = chrf_scorer(lowercase=lowercase).score(HYPOTHESES, REFERENCES[:1])
    case = str.lower if lowercase else str
    expected = chrf2(list(map(case, HYPOTHESES)), list(map(case, REFERENCES[0])))
    assert 10 < expected < 90
    assert score.score == pytest.approx(expected)
    assert "nc:6|nw:0" in score.signature
    assert f"case:{'lc' if lowercase else 'mixed'}" in score.signature
    assert str(score) == f"chrF2 {expected:.2f}  {score.signature}"


def test_a_perfect_translation_scores_100():
    lines = ["One two three four five.", "Six seven eight nine ten."]
    assert bleu_scorer().score(lines, [lines]).score == pytest.approx(100.0)
    assert chrf_scorer().score(lines, [lines]).score == pytest.approx(100.0)


def test_lines_hold_any_character():
    lines = ["a\u2028b c d e", "\x85 f\rg h i j", "\u200b"]
    assert bleu_scorer().score(lines, [lines]).score == pytest.approx(100.0)


def test_line_counts_must_agree():
    with pytest.raises(ValueError, match="2 hypotheses, but 1 references"):
        bleu_scorer().score(["a", "b"], [["a", "b"], ["a"]])
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
    scorer = paper_bleu_scorer(*PAPER_PAIRS[pair])
    for text, tokens in texts:
        assert scorer.metric._preprocess_segment(text).split() == tokens.split()


@pytest.mark.parametrize(("pair", "texts"), [("en-de", GERMAN), ("en-fr", FRENCH)])
def test_score_is_sacrebleus_of_the_tokens(pair, texts):
    references = [text for text, _ in texts]
    hypotheses = [text.replace("a", "e").replace("rien", "tout") for text in references]
    tokenized = paper_bleu_scorer(*PAPER_PAIRS[pair]).metric._preprocess_segment
    ours = paper_bleu_scorer(*PAPER_PAIRS[pair]).score(hypotheses, [references])
    theirs = sacrebleu.corpus_bleu(
        [tokenized(line) for line in hypotheses],
        [[tokens for _, tokens in texts]],
        tokenize="none",
        force=True,
    )
    assert 0 < ours.score < 100
    assert ours.score == theirs.score
    tokens_of_references = sum(len(tokens.split()) for _, tokens in texts)
    assert ours.details["reference_length"] == tokens_of_references


@pytest.mark.parametrize(
    ("pair", "tokens"), [("en-de", "moses-de+split-compounds"), ("en-fr", "moses-fr")]
)
def test_signature_has_the_steps_and_both_versions(pair, tokens):
    score = paper_bleu_scorer(*PAPER_PAIRS[pair]).score(["a b c d"], [["a b c d"]])
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
    "tokenizer.perl + multi-bleu.perl": lambda: paper_bleu_scorer("de", False),
    "get_ende_bleu.sh recipe (compound split, as in the paper)": lambda: paper_bleu_scorer(
        *PAPER_PAIRS["en-de"]
    ),
}
TOOLKITS = [
    "transformer/sockeye",
    pytest.param("transformer/tensor2tensor", marks=pytest.mark.slow),
    pytest.param("cnn/fairseq", marks=pytest.mark.slow),
]


def as_multi_bleu_prints(score):
    details = score.details
    precisions = "/".join(f"{precision:.1f}" for precision in details["precisions"])
    length, reference_length = details["hypothesis_length"], details["reference_length"]
    return (
        f"BLEU = {score.score:.2f}, {precisions} (BP={details['brevity_penalty']:.3f}, "
        f"ratio={length / reference_length:.3f}, hyp_len={length}, ref_len={reference_length})"
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
    assert score.details == {"edits": edits, "reference_length": 5}
    assert score.score == pytest.approx(100 * edits / 5)


def test_with_several_references_the_nearest_counts_and_lengths_are_averaged():
    references = [["a b c d e f", "g"], ["a b c x", "g h i"]]
    score = ter_scorer().score(["a b c d", "g h i"], references)
    # x for d; the other reference of each line would need 2 more.
    assert score.details == {"edits": 1, "reference_length": 5 + 2}
    assert score.score == pytest.approx(100 / 7)


def test_ter_remembers_segments_and_has_a_signature():
    hypotheses = ["the cat sat on the mat", "it rains", "the cat sat on the mat"]
    references = ["on the mat the cat sat", "it rained", "a cat sat on mats"]
    scorer = ter_scorer()
    for _ in range(2):  # the second time from memory
        score = scorer.score(hypotheses, [references])
        # A block moves, a word is replaced, and of the last line a, mats, and one word too many.
        assert score.details == {"edits": 1 + 1 + 3, "reference_length": 6 + 2 + 5}
    assert score.signature == (
        f"nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:{sacrebleu.__version__}"
    )
    assert str(score) == f"TER {500 / 13:.2f}  (5 edits, reference 13 words)  {score.signature}"
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
