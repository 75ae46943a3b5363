import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.messages.errors import UserError
from nmt_cli.parsing.labels import Labels
from nmt_cli.parsing.tree import read_trees, words_of
from nmt_cli.parsing.tree_output import splitter, tree_of
from tests.random_trees import PIECES, every_form

FORMS = every_form(Labels(frozenset({"S", "NP"}), frozenset({"NN", "VBZ", "."})))
lines = st.text(min_size=1, max_size=30).filter(words_of)


def test_parts_of_a_long_line_become_one_tree():
    outputs = ["(S(NP<NN>)NP)S", "(S(NP<DT><NN>)NP)S"]
    tree, repairs = tree_of(outputs, ["rain", "a", "dog"], PIECES)
    assert tree == "(TOP (S (NP (NN rain))) (S (NP (DT a) (NN dog))))"
    assert repairs.described() == "1 joined root"


def test_corrected_punctuation_is_counted():
    tree, repairs = tree_of(["(S<.><NN>)S"], ["rain", "."], PIECES)
    assert tree == "(TOP (S (XX rain) (. .)))"
    assert repairs.described() == "2 tags of punctuation corrected"


def test_a_perfect_output_needs_no_repair():
    tree, repairs = tree_of(["(S(NP<NN>)NP(VP<VBZ>)VP)S"], ["rain", "falls"], PIECES)
    assert (tree, repairs.total()) == ("(TOP (S (NP (NN rain)) (VP (VBZ falls))))", 0)


@pytest.mark.parametrize("form", FORMS[::5])
@given(outputs=st.lists(st.text(alphabet="(S)NP<>/ VBZ.x", max_size=20)), line=lines)
def test_any_output_gives_one_tree_of_the_words(form, outputs, line):
    words = words_of(line)
    text, _ = tree_of(outputs, words, form)
    (tree,) = read_trees([text], "output")
    assert tree.words == words
    assert text.startswith("(TOP ")


def test_words_are_split_at_spaces_only_and_brackets_are_escaped():
    assert words_of(" a (b)\tc\u00a0d  [e] \n") == ["a", "-LRB-b-RRB-", "c\u00a0d", "[e]"]
    assert words_of(" \t ") == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("It doesn't rain, she said.", "It does n't rain , she said ."),
        ('He (Anna\'s dog) cannot see "a boat".',
         "He -LRB- Anna 's dog -RRB- can not see `` a boat '' ."),
        ("x\u2028y z\u00a0z", "x y z z"),
    ],
)  # fmt: skip
def test_raw_text_is_cut_as_the_penn_treebank_does(line, words):
    words_of = splitter("penn", PIECES)
    assert words_of is not None
    assert words_of(line) == words.split(" ")


def test_raw_text_needs_a_model_that_parses_and_nltk(monkeypatch):
    with pytest.raises(UserError, match="penn is for models that parse; this one translates"):
        splitter("penn", None)
    monkeypatch.setitem(sys.modules, "nltk.tokenize.treebank", None)
    with pytest.raises(UserError, match=r"^--tokenize penn needs nltk, .*; run: .* install nltk$"):
        splitter("penn", PIECES)
