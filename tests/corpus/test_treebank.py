import pytest

from nmt_cli.corpus.text.recipe_text import read_sentences, write_sides
from nmt_cli.messages.errors import UserError
from nmt_cli.recipe.sections.corpora import ParallelFiles
from nmt_cli.recipe.sections.data import DataConfig, TreebankConfig

RAW = """\
( (S (NP-SBJ-1 (DT the) (NN rain))
     (VP (VBZ falls) (NP=2 (-NONE- *T*-1)))
     (-LRB- -LRB-) (. .)) )
(TOP (NP-TMP|NX (NN today)))  (NN (NNP Anna))
( (NP (-NONE- *)) )
(ROOT (S (NN x)) (S (NN y)))
"""
WORDS = ["the rain falls -LRB- .", "today", "Anna", "", "x y"]
CLEAN = [
    "(TOP (S (NP (DT the) (NN rain)) (VP (VBZ falls)) (-LRB- -LRB-) (. .)))",
    "(TOP (NP (NN today)))",
    "(TOP (NN (NNP Anna)))",
    "",
    "(TOP (S (NN x)) (S (NN y)))",
]


@pytest.fixture
def files(tmp_path):
    """Return a function that writes a treebank, and the words beside it if they are given."""

    def write(trees, words=None):
        target = tmp_path / "t.mrg"
        target.write_text(trees)
        source = target
        if words is not None:
            source = tmp_path / "t.txt"
            source.write_text("".join(f"{line}\n" for line in words))
        return ParallelFiles(source=source, target=target)

    return write


def refusal(files, config=None):
    with pytest.raises(UserError) as caught:
        list(read_sentences(files, config or TreebankConfig()))
    return str(caught.value)


@pytest.mark.parametrize("words", [None, [line.replace("-LRB-", "(") for line in WORDS]])
def test_trees_are_cleaned_and_the_words_are_the_sentence(files, words):
    sentences = list(read_sentences(files(RAW, words), TreebankConfig()))
    assert [sentence.text for sentence in sentences] == WORDS
    assert [sentence.bracketed for sentence in sentences] == CLEAN
    assert str(sentences[0].tree) == CLEAN[0].removeprefix("(TOP ")[:-1]  # one child, so no root


def test_traces_and_functions_stay_if_the_recipe_keeps_them(files):
    config = TreebankConfig(remove_traces=False, remove_functions=False)
    first, *_ = read_sentences(files(RAW), config)
    assert first.words == ("the", "rain", "falls", "*T*-1", "-LRB-", ".")
    assert "(NP-SBJ-1 (DT the)" in first.bracketed
    assert "(NP=2 (-NONE- *T*-1))" in first.bracketed


def test_words_of_its_own_may_differ_from_the_leaves_but_not_in_number(files):
    found = files("(S (NN Rain) (VBZ falls))\n(NN x)", ["rain falls", "x y"])
    sentences = read_sentences(found, TreebankConfig())
    assert next(sentences).words == ("rain", "falls")
    with pytest.raises(UserError) as caught:
        next(sentences)
    assert str(caught.value) == (
        f"{found.source}:2: the line has 2 words, but tree 2 of {found.target} has 1; give the "
        "words of the tree with spaces between them, or the treebank itself as source."
    )


@pytest.mark.parametrize(
    ("num_lines", "num_trees", "counts"),
    [(1, 3, ("1 line", "3 trees")), (3, 1, ("3 lines", "1 tree")), (2, 3, ("2 lines", "3 trees"))],
)
def test_another_number_of_lines_and_trees_is_named(files, num_lines, num_trees, counts):
    found = files("(NN x)\n" * num_trees, ["x"] * num_lines)
    assert refusal(found) == (
        f"{found.source} has {counts[0]} but {found.target} has {counts[1]}; "
        "line n of one must be the words of tree n of the other."
    )


def test_a_file_that_is_no_treebank_is_named_with_its_line(files):
    found = files("(S (NN rain))\nrain falls\n")
    assert refusal(found).startswith(f"{found.target}:2: rain has no brackets of its own")
    found = files("(S (NN rain)\n")
    assert refusal(found).startswith(f"{found.target}:1: the tree that begins here does not close")
    found = files(" \n\n")
    assert refusal(found) == (
        f"{found.target} has no trees; it must hold trees in the brackets of the Penn Treebank."
    )


def test_a_line_separator_ends_a_word(files):
    """Otherwise the tree, written on one line, would have a word with a space."""
    found = files("(S (NN rain)\n(NN snow\u2028fall))")
    assert refusal(found).startswith(
        f"{found.target}:2: a label or word has a space: (NN snow fall"
    )
    found = files("(S (NN rain))", ["rain\u2028falls"])
    assert refusal(found).startswith(f"{found.source}:1: the line has 2 words, but tree 1")


def test_sentences_and_trees_are_written_a_line_each(files, tmp_path):
    words, trees = tmp_path / "words", tmp_path / "trees"
    data = DataConfig.model_construct(
        source_language="en", target_language="en", treebank=TreebankConfig()
    )
    write_sides(files(RAW), data, words, trees)
    assert words.read_text() == "".join(f"{line}\n" for line in WORDS)
    assert trees.read_text() == "".join(f"{line}\n" for line in CLEAN)
