"""The sentences of treebanks: the words of each, and its tree."""

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from nmt_cli.corpus.text.parallel_text import refuse_pipes
from nmt_cli.files.lines import LineTexts, one_line
from nmt_cli.files.text_files import open_text
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.figures import counted
from nmt_cli.parsing.labels import with_root, without_functions, without_root, without_traces
from nmt_cli.parsing.tree import Tree, read_trees, words_of
from nmt_cli.recipe.corpora_config import ParallelFiles
from nmt_cli.recipe.data_config import TreebankConfig


class ParsedSentence(NamedTuple):
    """A sentence and its tree. If the tree has only traces, there are no words and no tree."""

    words: tuple[str, ...]
    tree: Tree | None  # cleaned, and without a root that has one child

    @property
    def text(self) -> str:
        """The words with spaces between them."""
        return " ".join(self.words)

    @property
    def bracketed(self) -> str:
        """The tree in the brackets of the Penn Treebank, with the root TOP."""
        return "" if self.tree is None else str(with_root(self.tree))


def read_sentences(files: ParallelFiles, config: TreebankConfig) -> Iterator[ParsedSentence]:
    """Yield the sentences of a treebank, the target; the source may be the same file.

    The words are those of the source. Raises UserError if a file cannot be read or is a pipe, if
    the target does not consist of trees or has none, or if the words of the source are not as many
    as the leaves of the trees.
    """
    source, target = files.text_files
    for path in (source, target):
        refuse_pipes(path)
    sentences = (
        ParsedSentence(tuple(tree.words) if tree else (), tree)
        for tree in _read_trees(target, config)
    )
    if source == target or _are_same(source, target):
        yield from sentences
        return
    num_lines = num_trees = 0
    with open_text(source) as stream:
        for line, sentence in zip_longest(LineTexts(stream), sentences):
            num_lines += line is not None
            num_trees += sentence is not None
            if line is None or sentence is None:
                continue  # to count the others
            words = words_of(one_line(line))
            if len(words) != len(sentence.words):
                raise UserError(
                    f"{source}:{num_lines}: the line has {counted(len(words), 'word')}, but "
                    f"tree {num_trees:,} of {target} has {len(sentence.words):,}; give the words "
                    "of the tree with spaces between them, or the treebank itself as source."
                )
            yield sentence._replace(words=tuple(words))
    if num_lines != num_trees:
        raise UserError(
            f"{source} has {counted(num_lines, 'line')} but {target} has "
            f"{counted(num_trees, 'tree')}; line n of one must be the words of tree n of the other."
        )


def _are_same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)


def _read_trees(path: Path, config: TreebankConfig) -> Iterator[Tree | None]:
    has_trees = False
    with open_text(path) as stream:
        lines = LineTexts(stream)
        for tree in read_trees(map(one_line, lines), str(path)):
            has_trees = True
            yield _cleaned(tree, config)
    if not has_trees:
        raise UserError(
            f"{path} has no trees; it must hold trees in the brackets of the Penn Treebank."
        )
    if lines.num_invalid:
        logs.warning(
            f"{path} is not UTF-8 in {counted(lines.num_invalid, 'line')}; "
            "is it in another encoding?"
        )


def _cleaned(tree: Tree, config: TreebankConfig) -> Tree | None:
    if config.remove_traces:
        rest = without_traces(tree)
        if rest is None:
            return None
        tree = rest
    if config.remove_functions:
        tree = without_functions(tree)
    # A root with several children stays, under the name TOP.
    return without_root(with_root(tree))
