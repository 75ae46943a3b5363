import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.messages.errors import UserError
from nmt_cli.parsing.labels import PENN_TREEBANK, Labels
from nmt_cli.parsing.tree import Leaf, Tree, read_trees
from nmt_cli.recipe.reading.reader import read_recipe
from tests.random_trees import (
    CONSTITUENTS,
    PIECES,
    TAGS,
    TENSOR2TENSOR,
    VINYALS,
    as_text,
    deep_text,
    delinearized,
    every_form,
    linearization,
    nested_trees,
    tree_of,
)
from tests.real_text import real_lines

LABELS = Labels(frozenset(CONSTITUENTS), frozenset(TAGS))
EVERY_FORM = every_form(LABELS)
AMBIGUOUS = linearization(Labels(frozenset({"NP"}), frozenset({"NP", "/NP"})), notation="slashes")
TREE = "(S (NP (PRP She)) (VP (VBD ate) (NP (DT a) (NN pear))) (. .))"


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (PIECES, "(S(NP<PRP>)NP(VP<VBD>(NP<DT><NN>)NP)VP<.>)S"),
        (VINYALS, "(S (NP XX )NP (VP XX (NP XX XX )NP )VP XX )S"),
        (TENSOR2TENSOR, "S NP PRP /NP VP VBD NP DT NN /NP /VP . /S"),
        (linearization(notation="brackets"), "(S (NP PRP )NP (VP VBD (NP DT NN )NP )VP . )S"),
        (linearization(closing="plain"), "(S(NP<PRP>)(VP<VBD>(NP<DT><NN>))<.>)"),
        (
            linearization(notation="brackets", closing="plain", words="kept"),
            "(S (NP PRP She ) (VP VBD ate (NP DT a NN pear ) ) . . )",
        ),
        (
            linearization(words="kept"),
            "(S (NP <PRP> She )NP (VP <VBD> ate (NP <DT> a <NN> pear )NP )VP <.> . )S",
        ),
        (
            linearization(PENN_TREEBANK, notation="slashes", tags="XX", closing="plain"),
            "S NP XX / VP XX NP XX XX / / XX /",
        ),
    ],
)
def test_text_of_each_form(form, text):
    tree = tree_of(TREE)
    assert form.join(form.linearize(tree)) == text
    tokens = form.split(text)
    assert tokens == form.linearize(tree)
    parsed = delinearized(tokens, tree.words, form)
    assert parsed.words == tree.words
    assert parsed.tags == (["XX"] * 4 + ["."] if form.tags == "XX" else tree.tags)
    assert parsed == tree or form.tags == "XX"


def test_the_notation_of_the_recipe():
    """The example in the comment of recipes/parsing.yaml, and its notation."""
    tree = tree_of("(S (NP (NNP John)) (VP (VBD ate) (NP (DT the) (NN cake))) (. .))")
    text = "(S(NP<NNP>)NP(VP<VBD>(NP<DT><NN>)NP)VP<.>)S"
    assert PIECES.join(PIECES.linearize(tree)) == text
    assert delinearized(PIECES.split(text), tree.words, PIECES) == tree
    treebank = read_recipe("parsing").recipe.data.treebank
    assert treebank is not None
    assert treebank.linearization(None) == PIECES
    tokens = PIECES.tokens_of(PENN_TREEBANK)
    assert len(tokens) == 2 * 27 + 45  # constituents with TOP; 36 tags of words, 9 of punctuation


@given(nested_trees, st.sampled_from(EVERY_FORM))
def test_tokens_and_words_give_the_tree_again(nested, form):
    tree = tree_of(as_text(nested))
    tokens = form.linearize(tree)
    assert form.split(form.join(tokens)) == tokens
    assert "\n" not in form.join(tokens)
    parsed = delinearized(tokens, tree.words, form)
    if form.tags == "kept":
        assert parsed == tree
    else:
        assert [p for p in parsed.parts if not isinstance(p, Leaf)] == [
            p for p in tree.parts if not isinstance(p, Leaf)
        ]
        assert [isinstance(p, Leaf) for p in parsed.parts] == [
            isinstance(p, Leaf) for p in tree.parts
        ]
        assert parsed.words == tree.words


@given(st.text(alphabet="()<>/ SNVP\n\u00a0", max_size=30), st.sampled_from(EVERY_FORM))
def test_split_loses_nothing_but_white_space(text, form):
    assert "".join("".join(form.split(text)).split()) == "".join(text.split())


def test_a_mark_without_its_tag_gets_it_back():
    tree = tree_of("(S (NN rain) (, ,) (. ?) (: --) (`` ``) ('' '') (-LRB- -LRB-))")
    parsed = delinearized(VINYALS.linearize(tree), tree.words, VINYALS)
    assert parsed.tags == ["XX", *tree.tags[1:]]


@pytest.mark.parametrize(
    ("tree", "form", "message"),
    [
        (Tree((Leaf("<", "less"),)), PIECES, "the tag '<' could not be read again in the notation "
         "angles; rename it or choose another notation."),
        (tree_of("( (S (NN rain)))"), PIECES, "the label '' could not"),
        (Tree((Leaf("/NP", "x"),)), AMBIGUOUS, "the tag '/NP' could not"),
        (Tree((Leaf("NP", "x"),)), AMBIGUOUS, "the tag 'NP' could not"),
        (tree_of("(ROOT (NN rain))"), TENSOR2TENSOR, "the label 'ROOT' is not among the known "
         "labels in the notation slashes"),
        (tree_of("(ROOT (NN rain))"), linearization(PENN_TREEBANK), "the label 'ROOT' is "),
        (Tree((Leaf("HYPH", "-"),)), TENSOR2TENSOR, "the tag 'HYPH' is not among"),
    ],
)  # fmt: skip
def test_labels_that_could_not_be_read_again_are_refused(tree, form, message):
    with pytest.raises(UserError) as caught:
        form.linearize(tree)
    assert str(caught.value).startswith(message)


def test_slashes_need_labels():
    with pytest.raises(ValueError, match="needs the labels"):
        linearization(notation="slashes")


@pytest.mark.parametrize("form", [PIECES, VINYALS, TENSOR2TENSOR])
def test_deep_trees_are_linearized(form):
    tree = tree_of(deep_text(10_000))
    assert (
        delinearized(form.linearize(tree), ["rain"], form).parts[:-10_000][:-1]
        == (tree.parts[:10_000])
    )


@pytest.mark.parametrize("bank", ["gum", "wsj-sample"])
def test_real_treebanks_are_linearized(bank):
    trees = list(read_trees(real_lines("treebank", bank, "dev.trees"), bank))
    tags = frozenset(tag for tree in trees for tag in tree.tags)
    slashes = linearization(PENN_TREEBANK._replace(tags=tags), notation="slashes")
    for form in (PIECES, linearization(notation="brackets"), slashes):
        for tree in trees:
            text = form.join(form.linearize(tree))
            assert delinearized(form.split(text), tree.words, form) == tree
