"""PARSEVAL of lines that hold a tree each, by the default parameters."""

from collections.abc import Sequence

from nmt_cli.metrics.parseval import CorpusScore, score_corpus, score_sentence
from nmt_cli.metrics.parseval_brackets import read_brackets
from nmt_cli.metrics.parseval_parameters import default_parameters


def score_trees(predicted: Sequence[str], golds: Sequence[str]) -> CorpusScore:
    """Return the score of ``predicted`` trees against gold trees; line n of both is sentence n.

    Raises UnreadableTreeError if a line of either is not a tree.
    """
    rules = default_parameters()
    return score_corpus(
        score_sentence(read_brackets(ours, rules), read_brackets(theirs, rules), rules)
        for ours, theirs in zip(predicted, golds, strict=True)
    )
