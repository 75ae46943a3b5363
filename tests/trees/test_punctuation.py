import os
import random
from pathlib import Path

import pytest

from nmt_cli.metrics.parseval import Status, score_sentence
from nmt_cli.metrics.parseval_brackets import read_brackets
from nmt_cli.metrics.parseval_parameters import default_parameters
from nmt_cli.trees.linearization import PIECES
from nmt_cli.trees.punctuation import tag_without_context, with_punctuation_tags
from nmt_cli.trees.reader import read_trees
from nmt_cli.trees.repair import repair

shared = pytest.mark.skipif(
    "NMT_CLI_SHARED" not in os.environ, reason="NMT_CLI_SHARED names no folder with real data"
)


@pytest.mark.parametrize(
    ("word", "tag"),
    [(",", ","), ("?", "."), ("--", ":"), ("...", ":"), ("“", "``"), ('"', "''"), ("[", "-LRB-"),
     ("-RCB-", "-RRB-"), ("rain", "XX"), ("-", "XX"), ("'", "XX"), ("%", "XX")],
)  # fmt: skip
def test_marks_have_tags_of_their_own(word, tag):
    assert tag_without_context(word) == tag


@pytest.mark.parametrize(
    ("leaf", "corrected"),
    [
        ("(NN .)", "(. .)"),
        ("(, !)", "(. !)"),
        ("(, rain)", "(XX rain)"),
        ("(-LRB- 1/2)", "(XX 1/2)"),
        ('(`` ")', '(`` ")'),
        ("('' \")", "('' \")"),
        ('(NN ")', "('' \")"),
        ("('' ')", "('' ')"),
        ("(POS ')", "(POS ')"),
        ("(: -)", "(: -)"),
        ("(HYPH -)", "(HYPH -)"),
        ("(NN rain)", "(NN rain)"),
    ],
)
def test_wrong_tags_are_corrected(leaf, corrected):
    (tree,) = read_trees([f"(S (NP {leaf}))"], "text")
    assert str(with_punctuation_tags(tree)) == f"(S (NP {corrected}))"


@shared
@pytest.mark.parametrize("bank", ["gum", "wsj-sample"])
def test_damaged_trees_of_real_treebanks_can_be_scored(bank):
    path = Path(os.environ["NMT_CLI_SHARED"], "treebank", bank, "dev.trees")
    trees = list(read_trees(path.read_text(encoding="utf-8").split("\n"), str(path)))[:400]
    assert sum(with_punctuation_tags(tree) != tree for tree in trees) <= 2
    rng, rules = random.Random(1), default_parameters()
    num_valid = num_valid_before = 0
    for gold in trees:
        tokens = PIECES.linearize(gold)
        del tokens[rng.randrange(len(tokens))]
        tokens.insert(rng.randrange(len(tokens)), rng.choice(tokens))
        damaged = repair(tokens, gold.words, PIECES).tree
        counted = read_brackets(str(gold), rules)
        before, after = (
            score_sentence(read_brackets(str(tree), rules), counted, rules).status
            for tree in (damaged, with_punctuation_tags(damaged))
        )
        num_valid_before += before == Status.VALID
        num_valid += after == Status.VALID
    assert num_valid >= 0.97 * len(trees)
    assert num_valid_before < 0.8 * len(trees)
