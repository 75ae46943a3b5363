import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.messages.errors import UserError
from nmt_cli.parsing.tree import Close, Leaf, Open, Tree, read_trees
from tests.random_trees import as_text, deep_text, nested_trees, words_of
from tests.real_text import real_lines

RAIN = "(S (NP (NN rain)) (VP (VBZ falls)) (. .))"
SNOW = "(S (NP (NN snow)) (VP (VBZ melts)))"


def read(text):
    return list(read_trees(text.split("\n"), "bank.mrg"))


def test_parts_are_in_the_order_of_the_text():
    rain, falls = Leaf("NN", "rain"), Leaf("VBZ", "falls")
    parts = (Open("S"), Open("NP"), rain, Close("NP"), falls, Close("S"))
    assert read("(S (NP (NN rain)) (VBZ falls))") == [Tree(parts)]


def test_words_and_tags():
    (tree,) = read(RAIN)
    assert tree.words == ["rain", "falls", "."]
    assert tree.tags == ["NN", "VBZ", "."]


@given(nested_trees)
def test_the_text_of_a_tree_is_what_was_read(nested):
    (tree,) = read(as_text(nested))
    assert str(tree) == as_text(nested)
    assert tree.words == words_of(nested)


@given(nested_trees, st.randoms(use_true_random=False))
def test_white_space_may_be_anywhere_between_tokens(nested, random):
    text = as_text(nested)
    spaces = ["\n", " ", "\t", "\n\n   "]
    spread = "".join(
        random.choice(spaces) if character == " "
        else f"{random.choice(['', *spaces])}{character}{random.choice(['', *spaces])}"
        if character in "()"
        else character
        for character in text
    )  # fmt: skip
    assert [str(tree) for tree in read(spread)] == [text]


@pytest.mark.parametrize("separator", ["", " ", "\n", "\n\n"])
def test_several_trees_on_a_line_or_on_several(separator):
    assert [str(tree) for tree in read(f"{RAIN}{separator}{SNOW}\n")] == [RAIN, SNOW]


@pytest.mark.parametrize("text", [f"( {RAIN})", f"({RAIN})", f"(\n  {RAIN}\n)"])
def test_the_outermost_label_may_be_empty(text):
    (tree,) = read(text)
    assert tree.parts[0] == Open("")
    assert str(tree) == f"( {RAIN})"


def test_nothing_and_blank_lines_are_no_trees():
    assert read("") == read(" \n\t\n") == []


def test_a_word_may_be_all_there_is():
    assert read("(UH yes)") == [Tree((Leaf("UH", "yes"),))]


def test_brackets_in_words_are_escaped_in_the_text():
    assert str(Tree((Leaf("-LRB-", "("),))) == "(-LRB- -LRB-)"
    assert str(Tree((Leaf("NN", "f(x)"),))) == "(NN f-LRB-x-RRB-)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(S (NN rain)", "bank.mrg:1: the tree that begins here does not close; 1 closing bracket "
         "is missing at the end of the file."),
        (f"{RAIN}\n\n(S\n(NP (NN rain", "bank.mrg:3: the tree that begins here does not close; "
         "3 closing brackets are missing at the end of the file."),
        ("(S (NN rain)))", "bank.mrg:1: a closing bracket without its opening bracket."),
        (f"{RAIN}\n)", "bank.mrg:2: a closing bracket without its opening bracket."),
        ("(S\n ((NN rain)))", "bank.mrg:2: a constituent has no label; only the outermost one may "
         "have none (in the tree that begins on line 1)."),
        (f"( (S (NN rain)\n( {SNOW})", "bank.mrg:2: a constituent has no label; only the outermost "
         "one may have none (in the tree that begins on line 1)."),
        ("(S (NP) (NN rain))", "bank.mrg:1: (NP) has no children; a constituent needs one, a word "
         "is (TAG word)."),
        ("(S ())", "bank.mrg:1: () has neither label nor children."),
        ("(())", "bank.mrg:1: () has neither label nor children."),
        ("(S (NP SBJ (NN rain)))", "bank.mrg:1: a label has a space: (NP SBJ (."),
        ("(S (NN heavy rain))", "bank.mrg:1: a label or word has a space: (NN heavy rain."),
        ("(S (NN rain) falls)", "bank.mrg:1: falls has no brackets of its own; a word is (TAG "
         "word)."),
        ("rain", "bank.mrg:1: rain has no brackets of its own; a word is (TAG word)."),
    ],
)  # fmt: skip
def test_what_is_no_tree_is_refused_with_its_line(text, message):
    with pytest.raises(UserError) as caught:
        read(text)
    assert str(caught.value) == message


def test_trees_before_an_error_are_yielded():
    trees = read_trees([SNOW, RAIN, ")"], "bank.mrg")
    assert [str(next(trees)), str(next(trees))] == [SNOW, RAIN]


def test_trees_may_be_deep():
    text = deep_text(10_000)
    (tree,), (other,) = read(text), read(text)
    assert str(tree) == text
    assert tree == other
    assert len({tree, other}) == 1
    assert "Leaf(tag='NN', word='rain')" in repr(tree)


@pytest.mark.parametrize("bank", ["gum", "wsj-sample"])
def test_real_treebanks_are_read_and_written(bank):
    lines = real_lines("treebank", bank, "dev.trees")
    assert [str(tree) for tree in read_trees(lines, bank)] == lines
