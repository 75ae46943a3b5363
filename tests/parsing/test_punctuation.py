import pytest

from nmt_cli.parsing.labels import NOT_COUNTED, PENN_TREEBANK, with_fitting_tags
from nmt_cli.parsing.parseval import score_trees
from nmt_cli.parsing.parseval_parameters import default_parameters
from tests.random_trees import tree_of


def fitted(text, tags=PENN_TREEBANK.tags):
    found = with_fitting_tags(tree_of(text), tags)
    return str(found.tree), found.num_replaced


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
