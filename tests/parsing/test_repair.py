from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.parsing.labels import Labels
from nmt_cli.parsing.tree import read_trees
from nmt_cli.parsing.tree_output import Repairs, repair
from tests.random_trees import CONSTITUENTS, PIECES, TAGS, WORDS, every_form, linearization

LABELS = Labels(
    frozenset([*CONSTITUENTS, "TOP"]), frozenset([*TAGS, "XX", ".", ":", "``", "-RRB-"])
)
TOKENS = {
    "angles": ["(S", ")S", "(NP", ")NP", ")", "<NN>", "<VBZ>", "<XX>", "(Q", ")Q", "<QQ>", "("],
    "brackets": ["(S", ")S", "(NP", ")NP", ")", "NN", "VBZ", "XX", "(Q", ")Q", "QQ", "("],
    "slashes": ["S", "/S", "NP", "/NP", "/", "NN", "VBZ", "XX", "QQ", "/Q", "("],
}  # fmt: skip
words_strategy = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6)


def repaired(text, words, form=PIECES):
    tree, repairs = repair(form.split(text), words.split(), form)
    return str(tree), {name: n for name, n in vars(repairs).items() if n}


@pytest.mark.parametrize(
    ("tokens", "tree", "repairs"),
    [
        ("(S(NP<NN>)NP<VBZ>)S", "(S (NP (NN rain)) (VBZ falls))", {}),
        # brackets
        ("(S(NP<NN>)NP<VBZ>", "(S (NP (NN rain)) (VBZ falls))", {"added_closings": 1}),
        ("(S(NP<NN><VBZ>", "(S (NP (NN rain) (VBZ falls)))", {"added_closings": 2}),
        ("(S(NP<NN>(VP<VBZ>)S", "(S (NP (NN rain) (VP (VBZ falls))))", {"added_closings": 2}),
        ("(S(NP<NN>)NP)VP<VBZ>)S", "(S (NP (NN rain)) (VBZ falls))", {"dropped_closings": 1}),
        (")S(S<NN><VBZ>)S)S", "(S (NN rain) (VBZ falls))", {"dropped_closings": 2}),
        ("(S(NP<NN>)VP(VP<VBZ>)VP)S", "(S (NP (NN rain) (VP (VBZ falls))))",
         {"dropped_closings": 1, "added_closings": 1}),
        # leaves
        ("(S(NP<NN>)NP)S", "(S (NP (NN rain)) (XX falls))", {"added_leaves": 1}),
        ("(S<NN><VBZ><RB>)S", "(S (NN rain) (VBZ falls))", {"dropped_leaves": 1}),
        ("(S<NN><VBZ>(NP<NN>)NP)S", "(S (NN rain) (VBZ falls))",
         {"dropped_leaves": 1, "empty_constituents": 1}),
        ("<NN>", "(TOP (NN rain) (XX falls))", {"added_leaves": 1, "joined_roots": 1}),
        # constituents
        ("(S(NP)NP<NN><VBZ>)S", "(S (NN rain) (VBZ falls))", {"empty_constituents": 1}),
        ("(S(NP(PP)PP)NP)S", "(TOP (XX rain) (XX falls))",
         {"empty_constituents": 3, "added_leaves": 2, "joined_roots": 1}),
        ("(NP<NN>)NP(VP<VBZ>)VP", "(TOP (NP (NN rain)) (VP (VBZ falls)))", {"joined_roots": 1}),
        ("<NN><VBZ>", "(TOP (NN rain) (VBZ falls))", {"joined_roots": 1}),
        # no symbols
        ("(S(NP<NN>)<VBZ>", "(S (NP (NN rain) (VBZ falls)))",
         {"no_symbols": 1, "added_closings": 2}),
        ("(S<NN>the<VBZ>)S<", "(S (NN rain) (VBZ falls))", {"no_symbols": 2}),
        ("", "(TOP (XX rain) (XX falls))", {"added_leaves": 2, "joined_roots": 1}),
    ],
)  # fmt: skip
def test_each_rule(tokens, tree, repairs):
    assert repaired(tokens, "rain falls") == (tree, repairs)


def test_unknown_labels():
    form = linearization(LABELS)
    text = "(S(Q<NN>)Q<QQ>)S"
    assert repaired(text, "rain falls", form) == (
        "(S (NN rain) (XX falls))",
        {"unknown_labels": 2},
    )
    text = "(S(Q(Q<NN>)Q)Q)Q<VBZ>)S"
    assert repaired(text, "rain falls", form) == (
        "(S (NN rain) (VBZ falls))",
        {"unknown_labels": 2, "dropped_closings": 1},
    )
    assert repaired("(S(Q<NN><VBZ>)S", "rain falls", form) == (
        "(S (NN rain) (VBZ falls))",
        {"unknown_labels": 1},
    )
    plain = linearization(LABELS, closing="plain")
    assert repaired("(S(Q(NP<NN>))<VBZ>)", "rain falls", plain) == (
        "(S (NP (NN rain)) (VBZ falls))",
        {"unknown_labels": 1},
    )


def test_plain_brackets():
    form = linearization(notation="brackets", closing="plain")
    assert repaired("(S (NP NN ) VBZ", "rain falls", form) == (
        "(S (NP (NN rain)) (VBZ falls))",
        {"added_closings": 1},
    )
    assert repaired(") (S (NP NN ) VBZ ) )", "rain falls", form) == (
        "(S (NP (NN rain)) (VBZ falls))",
        {"dropped_closings": 2},
    )
    assert repaired("(S (NP NN )NP VBZ ) )", "rain falls", form) == (
        "(S (NP (NN rain) (VBZ falls)))",
        {"no_symbols": 1},
    )


def test_other_tags_than_xx():
    form = linearization(tags="XX")
    assert repaired("(S<XX><VBZ>)S", "rain falls", form) == (
        "(S (XX rain) (XX falls))",
        {"unknown_labels": 1},
    )


@pytest.mark.parametrize(
    ("tokens", "tree", "repairs"),
    [
        ("(S NN rain VBZ falls )S", "(S (NN rain) (VBZ falls))", {}),
        ("(S NN snow VBZ falls )S", "(S (NN rain) (VBZ falls))", {"wrong_words": 1}),
        ("(S NN rain VBZ )S", "(S (NN rain) (VBZ falls))", {"wrong_words": 1}),
        ("(S NN rain VBZ", "(S (NN rain) (VBZ falls))", {"wrong_words": 1, "added_closings": 1}),
        # What follows a tag is its word, unless it is a bracket.
        ("(S NN VBZ falls )S", "(S (NN rain) (falls falls))", {"wrong_words": 2}),
        ("(S NN rain VBZ falls RB softly )S", "(S (NN rain) (VBZ falls))",
         {"wrong_words": 1, "dropped_leaves": 1}),
    ],
)  # fmt: skip
def test_words_that_are_kept_do_not_decide(tokens, tree, repairs):
    form = linearization(notation="brackets", words="kept")
    assert repaired(tokens, "rain falls", form) == (tree, repairs)


def test_a_mark_without_tag_is_tagged_by_itself():
    tree, _ = repair([], ["rain", ",", "snow", "."], PIECES)
    assert tree.tags == ["XX", ",", "XX", "."]


def test_there_must_be_words():
    with pytest.raises(ValueError, match="at least one word"):
        repair(["<NN>"], [], PIECES)


@given(st.data(), st.sampled_from(every_form(LABELS)), words_strategy)
def test_any_tokens_become_a_tree_of_exactly_the_words(data, form, words):
    choices = [*TOKENS[form.notation], *words, "", "<>", "stray"]
    tokens = data.draw(st.lists(st.sampled_from(choices), max_size=30))
    tree, repairs = repair(tokens, words, form)
    assert tree.words == words
    # The strict reader is the witness that the tree is well-formed.
    assert list(read_trees([str(tree)], "tree")) == [tree]
    if form.labels:
        assert {part.label for part in tree.parts if hasattr(part, "label")} <= LABELS.constituents
        assert set(tree.tags) <= LABELS.tags
    # Well-formed tokens need no repair, and tokens without repair are the tree's own.
    own = form.linearize(tree)
    again, needed = repair(own, words, form)
    assert needed == Repairs()
    assert again.parts == tree.parts or form.tags == "XX"
    assert (repairs.total() == 0) == (tokens == own)


def test_every_kind_of_repair_has_a_name():
    one_of_each = Repairs(*(1 for _ in fields(Repairs)))
    assert one_of_each.described().count(", ") + 1 == one_of_each.total()
    assert "1 unknown label, 1 closing bracket added, " in one_of_each.described()
    doubled = (one_of_each + one_of_each).described()
    assert doubled.startswith("2 tokens dropped, 2 unknown labels, ")


def test_deep_and_broken():
    closings = [")S"] * 10_000
    for tokens in (["(S"] * 10_000 + ["<NN>"], ["(S", "(NP"] * 5_000 + ["<NN>"] + closings):
        tree, _ = repair(tokens, ["rain"], PIECES)
        assert len(tree.parts) == 20_001
