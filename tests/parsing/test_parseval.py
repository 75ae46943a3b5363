import random
from collections import Counter

import pytest

from nmt_cli.parsing.parseval import (
    CorpusScore,
    Status,
    UnreadableTreeError,
    count_crossing,
    read_brackets,
    score_corpus,
    score_sentence,
)
from nmt_cli.parsing.parseval_parameters import Parameters, default_parameters
from tests.random_trees import deep_text
from tests.work_done import lines_run

RULES = default_parameters()
# The PP belongs to the verb here, and to the cat in CAT.
VERB = (
    "(TOP (S (NP (DT The) (NN dog)) (VP (VBZ sees) (NP (DT a) (NN cat)) "
    "(PP (IN in) (NP (NNP Rome)))) (. .)))"
)
CAT = (
    "(TOP (S (NP (DT The) (NN dog)) (VP (VBZ sees) (NP (NP (DT a) (NN cat)) "
    "(PP (IN in) (NP (NN Rome))))) (. .)))"
)


def score(predicted, gold, rules=RULES):
    return score_sentence(read_brackets(predicted, rules), read_brackets(gold, rules), rules)


def brackets(text, rules=RULES):
    return sorted(tuple(bracket) for bracket in read_brackets(text, rules).constituents)


def test_what_counts_of_a_tree():
    found = read_brackets(VERB, RULES)
    assert found.words == ["The", "dog", "sees", "a", "cat", "in", "Rome"]
    assert found.tags == ["DT", "NN", "VBZ", "DT", "NN", "IN", "NNP"]
    assert found.length == 8
    assert brackets(VERB) == [
        ("NP", 0, 2), ("NP", 3, 5), ("NP", 6, 7), ("PP", 5, 7), ("S", 0, 7), ("VP", 2, 7)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("(())", []),
        ("(TOP (X))", []),
        ("(NN rain)", []),
        ("(NN rain) (NP (NN snow))", [("NP", 1, 2)]),
        ("( (NP (NN rain)))", [("NP", 0, 1)]),
        ("(NP-SBJ-1 (NX=2 (NN|VB rain)))", [("NP", 0, 1), ("NX", 0, 1)]),
        ("(ADVP|PRT-CLR (RB up))", [("ADVP|PRT", 0, 1)]),
        ("(NP (NP (NN rain)))", [("NP", 0, 1), ("NP", 0, 1)]),
        ("(S (NP (-NONE- *)) (NN rain) (PRN (, ,) (X)))", [("S", 0, 1)]),
        ("(ROOT-9 (TOP (S (NN rain))))", [("S", 0, 1)]),
    ],
)
def test_constituents_that_count(text, expected):
    assert brackets(text) == expected


def test_a_label_that_is_equal_to_a_deleted_one_is_deleted_from_constituents_only():
    rules = Parameters(
        deleted_labels=frozenset({"B"}), equal_labels=frozenset({("A", "B"), ("C", "D")})
    )
    found = read_brackets("(S (A (C (A rain) (B snow))))", rules)
    assert [bracket.label for bracket in found.constituents] == ["C", "S"]
    assert found.tags == ["A"]


def test_functions_of_tags_stay():
    assert read_brackets("(NP (NN-X rain))", RULES).tags == ["NN-X"]


def test_length_counts_other_words_than_the_score():
    found = read_brackets("(S (NN rain) (, ,) (-NONE- *) (. .))", RULES)
    assert (found.length, len(found.words)) == (3, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(S (NN rain)", "1 closing bracket is missing"),
        ("(S (NP (NN rain", "3 closing brackets are missing"),
        ("(S (NN rain)))", "a closing bracket too many"),
        ("(S (NN rain)) (", "1 closing bracket is missing"),
        ("rain", "rain has no brackets"),
        ("(NN heavy rain)", "rain has no brackets of its own"),
        ("(S (NN rain) falls)", "falls has no brackets of its own"),
        ("(NP SBJ (NN rain))", r"a label has a space: \(NP SBJ \("),
    ],
)
def test_text_that_is_no_tree(text, message):
    with pytest.raises(UnreadableTreeError, match=message):
        read_brackets(text, RULES)


def test_a_tree_with_itself():
    result = score(VERB, VERB)
    assert result == (8, Status.VALID, "", 6, 6, 6, 0, 7, 7)
    assert (result.recall, result.precision, result.tagging_accuracy) == (100, 100, 100)


def test_one_constituent_more_and_one_tag_wrong():
    result = score(CAT, VERB)
    assert (result.matched, result.gold, result.predicted, result.crossing) == (6, 6, 7, 0)
    assert result.recall == 100
    assert result.precision == pytest.approx(600 / 7)
    assert result.tagging_accuracy == pytest.approx(600 / 7)


def test_crossing_constituents():
    gold = "(S (A (P a) (P b)) (B (P c) (P d)))"
    predicted = "(S (P a) (A (B (P b) (P c))) (P d))"
    result = score(predicted, gold)
    assert (result.matched, result.gold, result.predicted) == (1, 3, 3)
    assert result.crossing == 2  # A and B, though B of the gold tree is crossed twice too


@pytest.mark.parametrize(
    ("predicted", "gold", "matched"),
    [
        ("(A (A (A (P a))))", "(A (A (P a)))", 2),
        ("(A (P a))", "(A (A (P a)))", 1),
        ("(PRT (P a))", "(ADVP (P a))", 1),
        ("(PRT (ADVP (P a)))", "(ADVP (P a))", 1),
        ("(PRT (ADVP (P a)))", "(ADVP (ADVP (P a)))", 2),
        ("(B (P a))", "(A (P a))", 0),
        ("(ADVP (P a))", "(ADVP|PRT (P a))", 0),
    ],
)
def test_each_constituent_matches_once(predicted, gold, matched):
    assert score(predicted, gold).matched == matched


def test_a_constituent_matches_the_first_that_is_equal():
    # EQ_LABEL is no equivalence: C matches B, which A has taken.
    rules = Parameters(equal_labels=frozenset({("A", "B"), ("B", "C")}))
    assert score("(X (A (B (P a))))", "(X (C (A (P a))))", rules).matched == 2
    assert score("(X (A (B (P a))))", "(X (A (C (P a))))", rules).matched == 3
    assert score("(X (B (P a)))", "(X (C (A (P a))))", rules).matched == 2


def test_without_labels_only_words_count():
    rules = Parameters(is_labeled=False)
    assert score("(B (P a) (B (P b)))", "(A (P a) (C (P b)))", rules).matched == 2
    assert score("(B (P a) (B (P b)))", "(A (A (P a)) (P b))", rules).matched == 1


@pytest.mark.parametrize(
    ("predicted", "gold", "status", "problem"),
    [
        ("", VERB, Status.SKIPPED, "the predicted tree has no word that counts"),
        ("(TOP (X))", VERB, Status.SKIPPED, "the predicted tree has no word that counts"),
        ("(TOP (. no))", "(TOP (NN no))", Status.SKIPPED, "the predicted tree has no word"),
        ("(TOP (. no))", "(TOP (. no))", Status.SKIPPED, "the predicted tree has no word"),
        (
            "(TOP (NN no))",
            "(TOP (. no))",
            Status.ERROR,
            "words whose tags are not deleted: 1 in the predicted tree, 0 in the gold tree",
        ),
        (
            "(S (NN rain))",
            "(S (NN rain) (NN snow))",
            Status.ERROR,
            "words whose tags are not deleted: 1 in the predicted tree, 2 in the gold tree",
        ),
        (
            "(S (NN hail))",
            "(S (NN rain))",
            Status.ERROR,
            "the predicted tree has 'hail', the g",
        ),
    ],
)
def test_sentences_that_do_not_count(predicted, gold, status, problem):
    result = score(predicted, gold)
    assert result.status == status
    assert result.problem.startswith(problem)
    assert result.length == read_brackets(gold, RULES).length
    assert result[3:] == (0,) * 6
    assert (result.recall, result.precision, result.tagging_accuracy) == (0, 0, 0)


def test_a_predicted_line_that_is_no_tree_is_an_error():
    result = score_sentence("a closing bracket too many", read_brackets(VERB, RULES), RULES)
    assert result == (8, Status.ERROR, "a closing bracket too many", 0, 0, 0, 0, 0, 0)


def test_words_and_tags_may_be_declared_equal():
    rules = Parameters(
        equal_words=frozenset({("Rain", "rain")}), equal_labels=frozenset({("NN", "NNP")})
    )
    result = score("(S (NNP Rain))", "(S (NN rain))", rules)
    assert (result.status, result.correct_tags) == (Status.VALID, 1)


def test_a_corpus():
    """Three valid sentences with 6, 1 and 0 matches, an error and a skipped one."""
    sentences = [
        score(CAT, VERB),
        score("(S (P a) (A (P b) (P c)))", "(S (A (P a) (P b)) (P c))"),
        score("(NN rain)", "(TOP (NN rain))"),
        score("(NN rain)", "(NN snow)"),
        score("", VERB),
    ]
    result = score_corpus(sentences)
    assert result[:4] == (5, 1, 1, 3)
    assert result[-6:] == (7, 8, 9, 1, 11, 10)
    assert result.recall == pytest.approx(100 * 7 / 8)
    assert result.precision == pytest.approx(100 * 7 / 9)
    assert result.f1 == pytest.approx(2 / (8 / 700 + 9 / 700))
    assert result.complete_match == pytest.approx(100 / 3)  # the word without constituents
    assert result.average_crossing == pytest.approx(1 / 3)
    assert result.no_crossing == pytest.approx(200 / 3)
    assert result.two_or_less_crossing == 100
    assert result.tagging_accuracy == pytest.approx(1000 / 11)


def test_a_corpus_without_valid_sentences_scores_0():
    assert score_corpus([]) == CorpusScore(*(0,) * 18)
    assert score_corpus([score("", VERB)]) == CorpusScore(1, 0, 1, *(0,) * 15)


def random_tree(rng, words):
    """A tree over ``words`` with labels A, ADVP and PRT; sometimes chains over one span."""
    label = rng.choice(["A", "ADVP", "PRT"])
    if len(words) == 1:
        inside = f"(P {words[0]})"
    else:
        cut = rng.randrange(1, len(words))
        inside = f"{random_tree(rng, words[:cut])} {random_tree(rng, words[cut:])}"
    return f"({label} {inside})" if rng.random() < 0.7 or len(words) == 1 else inside


def cross(one, other):
    return (
        one.start < other.start < one.end < other.end
        or other.start < one.start < other.end < one.end
    )


def test_crossing_and_matching_are_as_defined():
    """Witnesses: the definition of crossing, and intersections of multisets."""
    rng = random.Random(1)
    num_crossing = num_matched = 0
    for _ in range(300):
        words = [f"w{number}" for number in range(rng.randint(1, 12))]
        gold = read_brackets(random_tree(rng, words), RULES)
        predicted = read_brackets(random_tree(rng, words), RULES)
        crossing = sum(
            any(cross(bracket, other) for other in gold.constituents)
            for bracket in predicted.constituents
        )
        ours, theirs = (
            Counter((b.label.replace("PRT", "ADVP"), b.start, b.end) for b in tree.constituents)
            for tree in (predicted, gold)
        )
        result = score_sentence(predicted, gold, RULES)
        assert result.crossing == crossing
        assert result.matched == (ours & theirs).total()
        assert count_crossing(gold.constituents, gold.constituents, len(words)) == 0
        num_crossing += crossing
        num_matched += result.matched
    assert num_crossing > 500
    assert num_matched > 500


def test_deep_trees_are_scored():
    result = score(deep_text(10_000), deep_text(9_000))
    assert (result.matched, result.gold, result.predicted) == (9_000, 9_000, 10_000)


def test_the_work_does_not_grow_with_the_square_of_the_depth():
    def work(depth):
        predicted, gold = (
            read_brackets(deep_text(depth).replace("NP", label), RULES) for label in ("A", "B")
        )
        return lines_run(lambda: score_sentence(predicted, gold, RULES))

    assert work(200) < 3 * work(100)
