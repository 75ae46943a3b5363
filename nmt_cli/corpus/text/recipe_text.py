"""The text of a recipe as pairs of lines: parallel text, or words and linearized trees."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from nmt_cli.corpus.text.parallel_text import ParallelText, refuse_pipes
from nmt_cli.corpus.tokenizers.sentencepiece_tokenizer import piece_of_word
from nmt_cli.files.lines import LineTexts, one_line
from nmt_cli.files.text_files import open_text
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.figures import counted
from nmt_cli.parsing.labels import (
    Labels,
    with_root,
    without_functions,
    without_root,
    without_traces,
)
from nmt_cli.parsing.tree import Tree, read_trees, words_of
from nmt_cli.recipe.model_settings import labels_as_json
from nmt_cli.recipe.schema import Recipe
from nmt_cli.recipe.sections.corpora import ParallelFiles
from nmt_cli.recipe.sections.data import DataConfig, TreebankConfig
from nmt_cli.recipe.sections.tokenizer import RESERVED_NAMES


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
    if source == target or (source.exists() and source.samefile(target)):
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


TREEBANK = "treebank"  # key of the labels in the manifest
NO_LABELS = Labels(frozenset(), frozenset())


class RecipeText:
    """The corpora of a recipe as parallel text; here their files are used as they are."""

    def __init__(self, languages: tuple[str, str]) -> None:
        """``languages`` are those to take from memories."""
        self._languages = languages

    def plain(self, files: ParallelFiles) -> ParallelFiles:
        """Return the files with the pairs of a corpus for training or validation."""
        return files.with_languages(self._languages)

    def measured(self, files: ParallelFiles) -> ParallelFiles:
        """Return the files of the validation lines, and of the references for its outputs."""
        return self.plain(files)

    def pairs(self, files: ParallelFiles) -> Iterable[tuple[str, str]]:
        """Return the pairs of any corpus, such as the test text."""
        return ParallelText(files.with_languages(self._languages))

    def symbols(self) -> Sequence[str]:
        """Return the texts that shall be one piece each."""
        return ()

    def manifest_entries(self) -> dict[str, Any]:
        """Return what the manifest of the prepared corpus holds about the text."""
        return {}


class LinearizedText(RecipeText):
    """The treebanks for training and validation, written into ``folder`` as parallel text.

    They are read once, or twice if the notation needs all labels from the start. If ``spaced``, the
    tokens have spaces between them in every notation, and are pieces. Raises UserError if a file
    cannot be read or does not consist of trees, if the words of a source are not as many as the
    leaves, or if the notation cannot have a label.
    """

    def __init__(
        self, data: DataConfig, config: TreebankConfig, folder: Path, *, spaced: bool
    ) -> None:
        self._config, self._spaced = config, spaced
        self._gold: dict[tuple[Path, Path], Path] = {}  # a tree a line; only validation has one
        self._labels = NO_LABELS  # of the training treebanks
        self._plain: dict[tuple[Path, Path], ParallelFiles] = {}
        corpora = [*data.train, *data.validation_sets]
        known = self._labels_of(corpora) if config.notation == "slashes" else None
        self._form = config.linearization(known)
        with logs.progress("reading trees", "trees") as counter:
            for number, files in enumerate(corpora):
                paths = [folder / f"{number}.{kind}" for kind in ("source", "target", "gold")]
                is_training = number < len(data.train)
                rows = self._rows(files, counter, is_training=is_training)
                _write_rows(paths[:2] if is_training else paths, rows)
                self._plain[files.text_files] = ParallelFiles(source=paths[0], target=paths[1])
                self._gold[files.text_files] = paths[2]

    def plain(self, files: ParallelFiles) -> ParallelFiles:
        """Return the two text files that were written for treebanks of the recipe."""
        return self._plain[files.text_files]

    def measured(self, files: ParallelFiles) -> ParallelFiles:
        """Return the words of the validation sentences, and their trees in brackets."""
        return ParallelFiles(source=self.plain(files).source, target=self._gold[files.text_files])

    def pairs(self, files: ParallelFiles) -> Iterator[tuple[str, str]]:
        """Yield the words and the tokens of each tree, as texts."""
        for number, sentence in enumerate(read_sentences(files, self._config), 1):
            yield sentence.text, self._linearized(sentence.tree, files.text_files[1], number)

    def symbols(self) -> list[str]:
        """Return the pieces of all tokens but words that the training trees can have.

        Raises UserError if one of them is a mark of the model.
        """
        tokens = self._form.tokens_of(self._labels)
        are_pieces = self._spaced or self._form.is_joined
        pieces = tokens if are_pieces else [piece_of_word(token) for token in tokens]
        for piece in pieces:
            if piece in RESERVED_NAMES:
                raise UserError(
                    f"a label of the treebank is written {piece}, which is a mark of the model "
                    "itself; rename it or choose another data.treebank.notation."
                )
        return pieces

    def manifest_entries(self) -> dict[str, Any]:
        """Return the labels for the manifest."""
        return {TREEBANK: labels_as_json(self._labels)}

    def _labels_of(self, corpora: list[ParallelFiles]) -> Labels:
        labels = NO_LABELS
        for files in corpora:
            for sentence in read_sentences(files, self._config):
                if sentence.tree is not None:
                    labels |= Labels.of(sentence.tree)
        return labels

    def _rows(
        self, files: ParallelFiles, counter: logs.ProgressBar, *, is_training: bool
    ) -> Iterator[tuple[str, ...]]:
        """Yield words and tokens, and note labels; of validation, also the tree in brackets."""
        for number, sentence in enumerate(read_sentences(files, self._config), 1):
            tokens = self._linearized(sentence.tree, files.text_files[1], number)
            yield (sentence.text, tokens, *(() if is_training else (sentence.bracketed,)))
            if is_training and sentence.tree is not None:
                self._labels |= Labels.of(sentence.tree)
            counter.advance(1)

    def _linearized(self, tree: Tree | None, path: Path, number: int) -> str:
        if tree is None:
            return ""
        try:
            tokens = self._form.linearize(tree)
        except UserError as error:
            raise UserError(f"{path}: in tree {number:,}, {error}") from None
        return " ".join(tokens) if self._spaced else self._form.join(tokens)


def text_of(recipe: Recipe, folder: Path) -> RecipeText:
    """Return the text of ``recipe``; treebanks are written into ``folder`` as text.

    Raises UserError if a treebank cannot be read or written in the notation of the recipe.
    """
    data = recipe.data
    if data.treebank is None:
        return RecipeText(data.languages)
    return LinearizedText(data, data.treebank, folder, spaced=recipe.tokenizer.type == "whitespace")


def write_sides(files: ParallelFiles, data: DataConfig, source: Path, target: Path) -> None:
    """Write the pairs of a corpus of ``data``, or words and trees of a treebank, a line for each.

    Raises UserError if a file cannot be read, or if lines of the two sides do not fit together.
    """
    pairs: Iterable[tuple[str, str]] = ParallelText(files.with_languages(data.languages))
    if data.treebank is not None:
        pairs = ((one.text, one.bracketed) for one in read_sentences(files, data.treebank))
    _write_rows((source, target), pairs)


def _write_rows(paths: Sequence[Path], rows: Iterable[tuple[str, ...]]) -> None:
    """Write each text of a row as a line of one of the files."""
    with ExitStack() as stack:
        streams = [stack.enter_context(path.open("wb")) for path in paths]
        for row in rows:
            for stream, text in zip(streams, row, strict=True):
                stream.write(f"{one_line(text)}\n".encode())
