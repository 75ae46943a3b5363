"""The text of a recipe as pairs of lines, whether it is parallel text or treebanks."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from nmt_cli.corpus.linearized_text import LinearizedText
from nmt_cli.corpus.parallel_text import ParallelText
from nmt_cli.corpus.sentencepiece_tokenizer import piece_of_word
from nmt_cli.recipe.schema import ParallelFiles, Recipe


class RecipeText(Protocol):
    """The corpora of a recipe as parallel text."""

    def plain(self, files: ParallelFiles) -> ParallelFiles:
        """Return the two text files with the pairs of a corpus for training or validation."""
        ...

    def measured(self, files: ParallelFiles) -> ParallelFiles:
        """Return two text files: the validation lines, and the references for its outputs."""
        ...

    def pairs(self, files: ParallelFiles) -> Iterable[tuple[str, str]]:
        """Return the pairs of any corpus, such as the test text."""
        ...

    def symbols(self) -> Sequence[str]:
        """Return the texts that shall be one piece each."""
        ...

    def facts(self) -> dict[str, Any]:
        """Return what the manifest of the prepared corpus holds about the text."""
        ...


class _PlainText:
    """Text files are used as they are."""

    def plain(self, files: ParallelFiles) -> ParallelFiles:
        return files

    def measured(self, files: ParallelFiles) -> ParallelFiles:
        return files

    def pairs(self, files: ParallelFiles) -> Iterable[tuple[str, str]]:
        return ParallelText(files)

    def symbols(self) -> Sequence[str]:
        return ()

    def facts(self) -> dict[str, Any]:
        return {}


def text_of(recipe: Recipe, folder: Path) -> RecipeText:
    """Return the text of ``recipe``; treebanks are written into ``folder`` as text.

    Raises UserError if a treebank cannot be read or written in the notation of the recipe.
    """
    data, is_whitespace = recipe.data, recipe.tokenizer.type == "whitespace"
    if data.treebank is None:
        return _PlainText()
    to_piece = str if is_whitespace else piece_of_word
    return LinearizedText(data, data.treebank, folder, spaced=is_whitespace, to_piece=to_piece)
