"""Labels and tags of trees: cleaned, and replaced if they do not fit the words."""

import pytest

from nmt_cli.parsing.labels import (
    NOT_COUNTED,
    PENN_TREEBANK,
    plain_label,
    with_fitting_tags,
    with_root,
    without_functions,
    without_root,
    without_traces,
)
from nmt_cli.parsing.parseval import score_trees
from nmt_cli.parsing.parseval_parameters import default_parameters
from tests.random_trees import deep_text, tree_of
from tests.work_done import lines_run


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("(S (NP (-NONE- *)) (VP (VB wait)))", "(S (VP (VB wait)))"),
        ("(S (SBAR (-NONE- 0) (S (NP (-NONE- *T*-1)))) (UH yes))", "(S (UH yes))"),
        ("(S (NP (NN rain) (-NONE- *)) (-NONE- *))", "(S (NP (NN rain)))"),
        ("(S (-LRB- -LRB-) (NN rain))", "(S (-LRB- -LRB-) (NN rain))"),
    ],
)
def test_traces_go_with_what_they_leave_empty(text, cleaned):
    assert str(without_traces(tree_of(text))) == cleaned


@pytest.mark.parametrize("text", ["(-NONE- *)", "(S (NP (-NONE- *)) (-NONE- *))"])
def test_nothing_but_traces_is_no_tree(text):
    assert without_traces(tree_of(text)) is None


@pytest.mark.parametrize(
    ("label", "plain"),
    [("NP-SBJ", "NP"), ("NP-SBJ-1", "NP"), ("NP=2", "NP"), ("PP-LOC=3", "PP"), ("ADVP|PRT", "ADVP"),
     ("NN|NNS", "NN"), ("-LRB-", "-LRB-"), ("-NONE-", "-NONE-"), ("PRP$", "PRP$"), ("WP$", "WP$"),
     ("NP", "NP"), ("", ""), ("=", "="), (":", ":"), ("''", "''")],
)  # fmt: skip
def test_plain_labels(label, plain):
    assert plain_label(label) == plain


def test_functions_go_from_constituents_and_tags():
    tree = tree_of("( (S-TPC-1 (NP=2 (PRP$ its) (NN|VB rain-coat)) (-LRB- -LRB-)))")
    expected = "( (S (NP (PRP$ its) (NN rain-coat)) (-LRB- -LRB-)))"
    assert str(without_functions(tree)) == expected


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("(TOP (S (NN rain)))", "(S (NN rain))"),
        ("( (S (NN rain)))", "(S (NN rain))"),
        ("(ROOT (S (NN rain) (. .)))", "(S (NN rain) (. .))"),
        ("(TOP (ROOT (S (NN rain))))", "(S (NN rain))"),
        ("(TOP (UH yes))", "(UH yes)"),
        ("(TOP (NP (NN rain)) (NP (NN snow)))", "(TOP (NP (NN rain)) (NP (NN snow)))"),
        ("(TOP (UH yes) (. .))", "(TOP (UH yes) (. .))"),
        ("(S (TOP (NN rain)))", "(S (TOP (NN rain)))"),
        ("(UH yes)", "(UH yes)"),
    ],
)
def test_a_root_goes_if_a_tree_is_left(text, bare):
    assert str(without_root(tree_of(text))) == bare


@pytest.mark.parametrize(
    ("text", "rooted"),
    [
        ("(S (NN rain))", "(TOP (S (NN rain)))"),
        ("( (S (NN rain)))", "(TOP (S (NN rain)))"),
        ("(ROOT (TOP (S (NN rain))))", "(TOP (S (NN rain)))"),
        ("( (UH yes) (. .))", "(TOP (UH yes) (. .))"),
        ("(UH yes)", "(TOP (UH yes))"),
    ],
)
def test_every_tree_gets_one_root(text, rooted):
    assert str(with_root(tree_of(text))) == rooted


def test_deep_trees_are_cleaned():
    tree = tree_of(deep_text(10_000).replace("NP", "NP-SBJ"))
    assert str(without_functions(tree)) == deep_text(10_000)
    assert str(without_root(with_root(tree))) == str(tree)
    assert without_traces(tree_of(deep_text(10_000).replace("NN", "-NONE-"))) is None


def test_the_work_does_not_grow_with_the_square_of_the_roots():
    one, two = (tree_of(deep_text(depth).replace("NP", "TOP")) for depth in (100, 200))
    assert lines_run(lambda: without_root(two)) < 3 * lines_run(lambda: without_root(one))
    assert str(without_root(two)) == "(NN rain)"


def fitted(text, tags=PENN_TREEBANK.tags):
    tree, num_replaced = with_fitting_tags(tree_of(text), tags)
    return str(tree), num_replaced


@pytest.mark.parametrize(
    ("before", "after", "replaced"),
    [
        ("(S (NN rain) (. .))", "(S (NN rain) (. .))", 0),
        ("(S (. rain) (, 5%) (. .))", "(S (XX rain) (XX 5%) (. .))", 2),
        ("(S (NN rain) (VBZ .))", "(S (NN rain) (. .))", 1),
        ("(S (: ,) (CC --))", "(S (: ,) (: --))", 1),  # which tag of punctuation does not matter
        ("(S (POS ') (HYPH -) (NN -LRB-))", "(S (POS ') (HYPH -) (NN -LRB-))", 0),
    ],
)
def test_tags_of_punctuation_fit_the_words(before, after, replaced):
    assert fitted(before) == (after, replaced)


def test_a_treebank_without_such_tags_keeps_its_own():
    assert fitted("(S (NN rain) (PUNCT .))", {"NN", "PUNCT"}) == ("(S (NN rain) (PUNCT .))", 0)


def test_the_tags_that_are_not_counted_are_those_of_the_default_parameters():
    assert default_parameters().deleted_labels - NOT_COUNTED == {"TOP", "ROOT", "-NONE-"}


def test_parseval_then_counts_every_sentence():
    gold, parse = "(TOP (S (NP (NN rain)) (. .)))", "(TOP (S (NP (, rain)) (NN .)))"
    assert score_trees([parse], [gold]).errors == 1
    score = score_trees([fitted(parse)[0]], [gold])
    assert (score.errors, score.f1) == (0, 100)
