"""Cuts raw English text into words as the Penn Treebank does."""

from collections.abc import Callable

from nmt_cli.messages.extras import importing


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
