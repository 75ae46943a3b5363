"""Turns the output of a model that parses into a tree of the input's words, and back."""

from collections.abc import Callable, Sequence, Set
from typing import Literal, NamedTuple

from nmt_cli.files.lines import one_line
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.extras import importing
from nmt_cli.messages.figures import counted
from nmt_cli.parsing.labels import PENN_TREEBANK, with_fitting_tags, with_root, without_root
from nmt_cli.parsing.linearization import Linearization
from nmt_cli.parsing.repair import Repairs, repair
from nmt_cli.parsing.tree import read_trees, words_of

Tokenize = Literal["none", "penn"]


class TreeText(NamedTuple):
    """A tree in the brackets of the Penn Treebank, with the root TOP, and how it was repaired."""

    text: str
    repairs: Repairs


def splitter(tokenize: Tokenize, form: Linearization | None) -> Callable[[str], list[str]]:
    """Return a function that gives the words of a line: those between spaces, or of raw text.

    Raises UserError if raw text is to be cut for a model that does not parse (``form`` is None), or
    if NLTK is missing.
    """
    if tokenize == "none":
        return lambda line: words_of(one_line(line))
    if form is None:
        raise UserError(
            f"--tokenize {tokenize} is for models that parse; this one translates, and its own "
            "tokenizer takes raw text."
        )
    cut = penn_tokenizer()
    return lambda line: words_of(" ".join(cut(one_line(line))))


def known_tags(form: Linearization) -> Set[str]:
    """Return the tags of the treebank whose trees are written as ``form``."""
    return (form.labels or PENN_TREEBANK).tags


def tree_of(outputs: Sequence[str], words: Sequence[str], form: Linearization) -> TreeText:
    """Return the tree of ``words`` that the texts ``outputs``, one after the other, stand for.

    There is one text for each part of the sentence. Any texts give a tree, by the rules of
    ``repair`` and ``with_fitting_tags``.
    """
    tokens = [token for output in outputs for token in form.split(output)]
    tree, repairs = repair(tokens, words, form)
    fitted = with_fitting_tags(tree, known_tags(form))
    repairs.wrong_punctuation = fitted.num_replaced
    return TreeText(str(with_root(fitted.tree)), repairs)


def linearized(line: str, num_words: int, form: Linearization, *, spaced: bool) -> str:
    """Return the text of the tree in ``line``, which has ``num_words`` leaves.

    ``spaced`` puts spaces between the tokens in every notation. Raises UserError if the line is not
    one tree, has other leaves, or has a label that the model does not know.
    """
    name = "tree"
    try:
        trees = list(read_trees([one_line(line)], name))
    except UserError as error:
        raise UserError(str(error).removeprefix(f"{name}:1: ").rstrip(".")) from None
    if len(trees) != 1:
        raise UserError(f"its target has {len(trees)} trees in brackets, not one")
    (tree,) = trees
    if len(tree.words) != num_words:
        raise UserError(
            f"its source has {counted(num_words, 'word')}, but the tree has "
            f"{counted(len(tree.words), 'leaf', 'leaves')}"
        )
    tokens = form.linearize(without_root(with_root(tree)))
    return " ".join(tokens) if spaced else form.join(tokens)


def penn_tokenizer() -> Callable[[str], list[str]]:
    """Return a function that cuts one sentence into words: does n't, `` a book '', -LRB-.

    Raises UserError if NLTK is not installed.
    """
    with importing("parsing", "--tokenize penn cuts text"):
        from nltk.tokenize.treebank import TreebankWordTokenizer
    tokenizer = TreebankWordTokenizer()

    def tokenize(text: str) -> list[str]:
        words: list[str] = tokenizer.tokenize(text, convert_parentheses=True)
        return words

    return tokenize
